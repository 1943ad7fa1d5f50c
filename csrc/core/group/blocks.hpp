// How the Blocks of a collective follow from what a caller has: memory in one piece, and counts.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/group/communicator.hpp"

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

/// The blocks of a collective whose parts are all equal, from memory in one piece at both ends; nothing where the
/// numbers of elements do not fit, or the collective is none of all_reduce, all_gather, reduce_scatter and all_to_all.
[[nodiscard]] inline std::optional<std::vector<Block>> even_blocks(Collective collective, std::size_t self,
                                                                   std::size_t ranks, const Block& whole,
                                                                   std::size_t output_elements,
                                                                   std::size_t element_bytes) {
  const std::size_t given = whole.elements;
  const std::size_t part = collective == Collective::all_gather ? given : given / ranks;
  const std::vector<std::size_t> counts(collective == Collective::all_reduce ? 0 : ranks, part);
  const auto inputs = [&] { return consecutive(&Block::input, whole.input, counts, element_bytes); };
  const auto outputs = [&] { return consecutive(&Block::output, whole.output, counts, element_bytes); };
  std::vector<Block> blocks;
  switch (collective) {
    case Collective::all_reduce:
      if (output_elements != given) return std::nullopt;
      return std::vector<Block>{whole};
    case Collective::all_gather:
      if (output_elements != given * ranks) return std::nullopt;
      blocks = outputs();
      blocks[self].input = whole.input;
      return blocks;
    case Collective::reduce_scatter:
      if (given != output_elements * ranks) return std::nullopt;
      blocks = inputs();
      blocks[self].output = whole.output;
      return blocks;
    case Collective::all_to_all:
      if (output_elements != given || given % ranks != 0) return std::nullopt;
      return exchanged(inputs(), outputs(), self);
    default:
      return std::nullopt;
  }
}

}  // namespace syntony
