// What one instruction of the interpreter combines, and the loops (combine.hpp) for its element type and operator.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/combine.hpp"
#include "cuda/device/kernel_form.hpp"

namespace syntony::cuda {

/// One piece of an instruction, for all threads of a block to read.
struct Combination {
  std::byte* pointers[kMostEnds];  // the sources, then the destinations; without messages sent in lines
  std::uint32_t sources = 0;
  std::uint32_t destinations = 0;
  std::uint64_t bytes = 0;
  // A message in lines (ll, ll128) is the first source and a further destination.
  const std::byte* lines_in = nullptr;
  std::byte* lines_out = nullptr;
  std::uint64_t flag_in = 0;
  std::uint64_t flag_out = 0;
  std::uint64_t lines_to_fill = 0;  // minimum of lines_out to fill; see low_latency.hpp

  [[nodiscard]] SYNTONY_DEVICE const std::byte* source(std::uint32_t i) const { return pointers[i]; }
  [[nodiscard]] SYNTONY_DEVICE std::byte* destination(std::uint32_t i) const { return pointers[sources + i]; }
};

template <class Machine>
SYNTONY_DEVICE void combine(const Machine& machine, DType dtype, ReduceOp op, const Combination& combination) {
  if (combination.sources == 1) return copy(machine, combination);
  if (op == ReduceOp::sum) {
    visit_format(unsigned_of(dtype), [&](auto format) {
      using Format = decltype(format);
      // As many vectors at once as keep the widened sum in registers.
      constexpr std::uint32_t kBatch = sizeof(typename Format::Storage) >= 4 ? 4 : sizeof(typename Format::Storage);
      combine_as<Format, kBatch>(machine, combination, Known<ReduceOp::sum>{});
    });
  } else {
    // Rare, so kept short: vectors one at a time, and elements one at a time if a vector has sixteen.
    visit_format(dtype, [&](auto format) {
      using Format = decltype(format);
      if constexpr (sizeof(typename Format::Storage) == 1) {
        combine_elements<Format>(machine, combination, op, 0, combination.bytes);
      } else {
        combine_as<Format, 1>(machine, combination, op);
      }
    });
  }
}

}  // namespace syntony::cuda
