// A call's memory as Programs see it, and how it follows from the caller's buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/program/collective.hpp"

namespace syntony {

/// One block of a collective's buffers (collective.hpp): its address on this rank and its size. `input` or `output` is
/// null if the collective gives this rank none. If both are the same memory, the call is in place.
struct Block {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t elements = 0;
};

/// A part of a caller's input (Byte const) or output. If the collective gives this rank no such block, the memory is
/// ignored and may be null, but the size matters.
template <typename Byte>
struct Part {
  Byte* memory = nullptr;
  std::size_t elements = 0;
};
using InputPart = Part<const std::byte>;
using OutputPart = Part<std::byte>;

/// Consecutive parts of `counts` elements, starting at `memory`, which may be null.
template <typename Byte>
[[nodiscard]] std::vector<Part<Byte>> consecutive(Byte* memory, std::span<const std::size_t> counts,
                                                  std::size_t element_bytes) {
  std::vector<Part<Byte>> parts;
  parts.reserve(counts.size());
  for (const std::size_t count : counts) {
    parts.push_back({memory, count});
    if (memory != nullptr) memory += count * element_bytes;
  }
  return parts;
}

/// The rank whose blocks are asked for.
struct Member {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint32_t root = 0;
};

/// The blocks of a collective at `member`. `inputs`: one part per destination if destinations have blocks of their own,
/// else one; `outputs`: the same by source. `elsewhere`: elements of an all_to_all's block between two other ranks.
[[nodiscard]] std::vector<Block> blocks_of(Collective collective, const Member& member,
                                           std::span<const InputPart> inputs, std::span<const OutputPart> outputs,
                                           std::size_t elsewhere = 0);

/// The same for parts of `elements` elements, consecutive in `input` and in `output`.
[[nodiscard]] std::vector<Block> even_blocks(Collective collective, const Member& member, const std::byte* input,
                                             std::byte* output, std::size_t elements, std::size_t element_bytes);

}  // namespace syntony
