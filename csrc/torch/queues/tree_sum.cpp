#include "torch/queues/tree_sum.hpp"

#include <array>
#include <cstring>
#include <span>

#include "core/kernels/kernels.hpp"
#include "torch/buffers.hpp"

namespace syntony::overlap {

void tree_sum(const at::Tensor& output, const at::Tensor& terms, std::size_t count) {
  const std::optional<DType> dtype = glue::dtype_of(output.scalar_type());
  TORCH_CHECK(dtype && terms.scalar_type() == output.scalar_type(), "no pairwise sum of ", terms.scalar_type());
  const auto elements = glue::elements_of(output);
  const std::size_t bytes = elements * output.element_size();
  TORCH_CHECK(terms.nbytes() >= count * bytes && output.is_contiguous() && terms.is_contiguous(), "a pairwise sum of ",
              count, " terms of ", elements, " elements needs them one behind the other");
  auto* const first = static_cast<std::byte*>(terms.data_ptr());
  auto* const sum = static_cast<std::byte*>(output.data_ptr());
  if (count == 1) std::memcpy(sum, first, bytes);
  for (std::size_t stride = 1; stride < count; stride *= 2) {
    const bool last = stride * 2 >= count;
    for (std::size_t at = 0; at + stride < count; at += 2 * stride) {
      std::byte* const left = first + at * bytes;
      const std::array<const std::byte*, 2> pair{left, left + stride * bytes};
      reduce(*dtype, ReduceOp::sum, last ? sum : left, pair, elements);
    }
  }
}

at::Tensor square_sums(const at::Tensor& elements) {
  constexpr std::int64_t kBlock = 64;
  TORCH_CHECK(elements.scalar_type() == at::kFloat && elements.is_contiguous() && elements.numel() % kBlock == 0,
              "sums of squares are of contiguous float32 in blocks of ", kBlock, " elements");
  if (!elements.is_cpu()) {  // the same tree, over all blocks at once
    at::Tensor squares = elements.to(at::kDouble).square().view({-1, kBlock});
    for (std::int64_t half = kBlock / 2; half > 0; half /= 2) {
      squares = squares.narrow(1, 0, half) + squares.narrow(1, half, half);
    }
    return squares.flatten();
  }
  at::Tensor sums = at::empty({elements.numel() / kBlock}, at::kDouble);
  const float* block = elements.const_data_ptr<float>();
  for (double& sum : std::span(sums.mutable_data_ptr<double>(), static_cast<std::size_t>(sums.numel()))) {
    std::array<double, kBlock> square;
    for (std::size_t i = 0; i < kBlock; ++i) square[i] = static_cast<double>(block[i]) * static_cast<double>(block[i]);
    for (std::size_t half = kBlock / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) square[i] += square[i + half];
    }
    sum = square[0];
    block += kBlock;
  }
  return sums;
}

}  // namespace syntony::overlap
