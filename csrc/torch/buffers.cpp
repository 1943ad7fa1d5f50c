#include "torch/buffers.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>

namespace syntony::glue {
namespace {

bool lies_plainly(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

std::byte* memory_of(const at::Tensor& tensor) {
  // Of an empty tensor nobody reads or writes a byte; its address only has to be one.
  static constexpr std::byte kNowhere{};
  void* const data = tensor.data_ptr();
  return data != nullptr ? static_cast<std::byte*>(data) : const_cast<std::byte*>(&kNowhere);
}

at::Tensor plain_copy(const at::Tensor& tensor) {
  const c10::NoGradGuard no_grad;
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
}

}  // namespace

std::optional<DType> dtype_of(at::ScalarType type) {
  static constexpr std::array<at::ScalarType, kDTypes.size()> kTypes{
      at::kByte,          at::kChar,        at::kUInt16,          at::kShort,
      at::kUInt32,        at::kInt,         at::kUInt64,          at::kLong,
      at::kHalf,          at::kBFloat16,    at::kFloat,           at::kDouble,
      at::kBool,          at::kComplexHalf, at::kComplexFloat,    at::kComplexDouble,
      at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz,
      at::kFloat8_e8m0fnu};
  const auto at = std::ranges::find(kTypes, type);
  return at == kTypes.end() ? std::nullopt : std::optional(static_cast<DType>(at - kTypes.begin()));
}

const std::byte* Buffers::input(const at::Tensor& tensor) {
  return memory_of(held_.emplace_back(lies_plainly(tensor) ? tensor : plain_copy(tensor)));
}

std::byte* Buffers::output(const at::Tensor& tensor) {
  if (lies_plainly(tensor)) return memory_of(held_.emplace_back(tensor));
  return memory_of(staged_.emplace_back(tensor, at::empty(tensor.sizes(), tensor.options())).second);
}

Block Buffers::in_place(const at::Tensor& tensor) {
  std::byte* const memory = lies_plainly(tensor) ? memory_of(held_.emplace_back(tensor))
                                                 : memory_of(staged_.emplace_back(tensor, plain_copy(tensor)).second);
  return {.input = memory, .output = memory, .elements = static_cast<std::size_t>(tensor.numel())};
}

void Buffers::copy_back() {
  const c10::NoGradGuard no_grad;
  for (const auto& [tensor, content] : staged_) tensor.copy_(content);
}

}  // namespace syntony::glue
