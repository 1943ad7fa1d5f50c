#include "overlap/tree_sum.hpp"

#include <array>
#include <cstring>

#include "core/kernels/kernels.hpp"
#include "torch/buffers.hpp"

namespace syntony::overlap {

void tree_sum(const at::Tensor& output, const at::Tensor& terms, std::size_t count) {
  const std::optional<DType> dtype = glue::dtype_of(output.scalar_type());
  TORCH_CHECK(dtype && terms.scalar_type() == output.scalar_type(), "no canonical sum of ", terms.scalar_type());
  const auto elements = glue::elements_of(output);
  const std::size_t bytes = elements * output.element_size();
  TORCH_CHECK(terms.nbytes() >= count * bytes && output.is_contiguous() && terms.is_contiguous(), "a canonical sum of ",
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

}  // namespace syntony::overlap
