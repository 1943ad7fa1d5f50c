// Where an operation's tensors are in memory.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "core/kernels/dtype.hpp"
#include "core/program/block.hpp"

namespace syntony::glue {

/// torch's names for the runtime's element types.
inline constexpr std::array<at::ScalarType, kDTypes.size()> kTorchTypes{
    at::kByte,          at::kChar,        at::kUInt16,          at::kShort,
    at::kUInt32,        at::kInt,         at::kUInt64,          at::kLong,
    at::kHalf,          at::kBFloat16,    at::kFloat,           at::kDouble,
    at::kBool,          at::kComplexHalf, at::kComplexFloat,    at::kComplexDouble,
    at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz,
    at::kFloat8_e8m0fnu};

/// The runtime's name for a torch dtype, or nothing for those it cannot reduce (quantized, sub-byte), which are moved
/// as bytes.
[[nodiscard]] constexpr std::optional<DType> dtype_of(at::ScalarType type) {
  const auto at = std::ranges::find(kTorchTypes, type);
  return at == kTorchTypes.end() ? std::nullopt : std::optional(static_cast<DType>(at - kTorchTypes.begin()));
}
[[nodiscard]] constexpr at::ScalarType torch_type(DType dtype) { return kTorchTypes[static_cast<std::size_t>(dtype)]; }

inline std::size_t elements_of(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

/// Holds an operation's tensors while it is in flight and provides their memory. A contiguous tensor is used in place;
/// any other (strided, conjugated) is staged: copied before, and copied back afterwards if it is an output.
class Buffers {
 public:
  /// Memory with the tensor's content. Never null, even for an empty tensor, because null means "no buffer" in a Block.
  const std::byte* input(const at::Tensor& tensor) {
    return memory_of(held_.emplace_back(lies_plainly(tensor) ? tensor : plain_copy(tensor)));
  }
  /// Memory whose content `copy_back()` stores in the tensor.
  std::byte* output(const at::Tensor& tensor) {
    if (lies_plainly(tensor)) return memory_of(held_.emplace_back(tensor));
    return memory_of(staged_.emplace_back(tensor, at::empty(tensor.sizes(), tensor.options())).second);
  }
  /// The same memory as input and output.
  OutputPart in_place(const at::Tensor& tensor) {
    std::byte* const memory = lies_plainly(tensor) ? memory_of(held_.emplace_back(tensor))
                                                   : memory_of(staged_.emplace_back(tensor, plain_copy(tensor)).second);
    return {memory, elements_of(tensor)};
  }
  /// Fills the outputs that were staged; call after success.
  void copy_back() {
    const c10::NoGradGuard no_grad;
    for (const auto& [tensor, content] : staged_) tensor.copy_(content);
  }

  /// Calls `visit` with every tensor whose memory was provided, and with those that will be filled.
  template <typename Visit>
  void each(const Visit& visit) const {
    for (const at::Tensor& tensor : held_) visit(tensor);
    for (const auto& [tensor, content] : staged_) {
      visit(tensor);
      visit(content);
    }
  }

 private:
  static bool lies_plainly(const at::Tensor& tensor) {
    return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  }
  static std::byte* memory_of(const at::Tensor& tensor) {
    // Nobody reads or writes a byte of an empty tensor; it only needs a valid address.
    static constexpr std::byte kNowhere{};
    void* const data = tensor.data_ptr();
    return data != nullptr ? static_cast<std::byte*>(data) : const_cast<std::byte*>(&kNowhere);
  }
  static at::Tensor plain_copy(const at::Tensor& tensor) {
    const c10::NoGradGuard no_grad;
    return tensor.detach().resolve_conj().resolve_neg().contiguous();
  }

  c10::SmallVector<at::Tensor, 2> held_;
  std::vector<std::pair<at::Tensor, at::Tensor>> staged_;  // output tensor, and where its content is
};

}  // namespace syntony::glue
