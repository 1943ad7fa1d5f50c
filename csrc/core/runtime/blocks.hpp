// How the Blocks of a collective follow from what a caller has: memory in one piece, and counts.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/runtime/communicator.hpp"

namespace syntony {

/// Blocks of `counts` elements, one after another from `memory`; `end` is &Block::input or &Block::output.
template <typename Byte>
[[nodiscard]] std::vector<Block> consecutive(Byte* Block::* end, Byte* memory, std::span<const std::size_t> counts,
                                             std::size_t element_bytes) {
  std::vector<Block> blocks(counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    blocks[i].elements = counts[i];
    blocks[i].*end = std::exchange(memory, memory + counts[i] * element_bytes);
  }
  return blocks;
}

/// all_to_all's blocks: index s * n + d; this rank's row is what it sends, its column what it receives. The others' are
/// as large as its own first, which is right when all are even, and does not matter when they are not.
[[nodiscard]] inline std::vector<Block> exchanged(std::span<const Block> sent, std::span<const Block> received,
                                                  std::size_t self) {
  const std::size_t ranks = sent.size();
  std::vector<Block> blocks(ranks * ranks, {nullptr, nullptr, sent[0].elements});
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    blocks[self * ranks + peer] = sent[peer];
    if (peer != self) blocks[peer * ranks + self] = received[peer];
  }
  blocks[self * ranks + self].output = received[self].output;
  return blocks;
}

}  // namespace syntony
