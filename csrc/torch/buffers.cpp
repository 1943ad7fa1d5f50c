#include "torch/buffers.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cstring>

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

struct Range {
  const std::byte* begin;
  const std::byte* end;
  [[nodiscard]] bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

bool crossing(std::span<const Block> blocks, std::size_t element_bytes) {
  for (const Block& written : blocks) {
    if (written.output == nullptr) continue;
    const Range target{written.output, written.output + written.elements * element_bytes};
    for (const Block& read : blocks) {
      if (read.input == nullptr || (&read == &written && read.input == written.output)) continue;
      if (target.overlaps({read.input, read.input + read.elements * element_bytes})) return true;
    }
  }
  return false;
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

void Buffers::separate(std::span<Block> blocks, std::size_t element_bytes) {
  if (blocks.size() < 2 || !crossing(blocks, element_bytes)) return;
  std::size_t total = 0;
  for (const Block& block : blocks) total += block.input != nullptr ? block.elements * element_bytes : 0;
  std::byte* next = memory_of(held_.emplace_back(at::empty({static_cast<std::int64_t>(total)}, at::kByte)));
  for (Block& block : blocks) {
    if (block.input == nullptr) continue;
    const std::size_t bytes = block.elements * element_bytes;
    block.input = static_cast<const std::byte*>(std::memcpy(next, block.input, bytes));
    next += bytes;
  }
}

void Buffers::copy_back() {
  const c10::NoGradGuard no_grad;
  for (const auto& [tensor, content] : staged_) tensor.copy_(content);
}

}  // namespace syntony::glue
