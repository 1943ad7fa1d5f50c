#include "core/program/block.hpp"

namespace syntony {

std::vector<Block> blocks_of(Collective collective, const Member& member, std::span<const InputPart> inputs,
                             std::span<const OutputPart> outputs, std::size_t elsewhere) {
  const CollectiveFacts& facts = facts_of(collective);
  const std::uint32_t destinations = blocks_of_source(collective, member.ranks);
  std::vector<Block> blocks(block_count(collective, member.ranks));
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    const std::uint32_t source = i / destinations, destination = i % destinations;
    const InputPart& input = inputs[facts.by_destination ? destination : 0];
    const OutputPart& output = outputs[facts.by_source ? source : 0];
    const bool starts = starts_with(collective, member.ranks, member.root, member.rank, i);
    const bool ends = ends_with(collective, member.ranks, member.root, member.rank, i);
    Block& block = blocks[i];
    if (starts) block.input = input.memory;
    if (ends) block.output = output.memory;
    if (facts.by_source && facts.by_destination) {
      block.elements = starts ? input.elements : ends ? output.elements : elsewhere;
    } else {
      block.elements = facts.by_source ? output.elements : input.elements;
    }
  }
  return blocks;
}

std::vector<Block> even_blocks(Collective collective, const Member& member, const std::byte* input, std::byte* output,
                               std::size_t elements, std::size_t element_bytes) {
  const CollectiveFacts& facts = facts_of(collective);
  const std::uint32_t destinations = blocks_of_source(collective, member.ranks);
  const std::size_t bytes = elements * element_bytes;
  std::vector<Block> blocks(block_count(collective, member.ranks), Block{.elements = elements});
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    const std::size_t given = facts.by_destination ? i % destinations : 0,
                      taken = facts.by_source ? i / destinations : 0;
    if (starts_with(collective, member.ranks, member.root, member.rank, i)) blocks[i].input = input + given * bytes;
    if (ends_with(collective, member.ranks, member.root, member.rank, i)) blocks[i].output = output + taken * bytes;
  }
  return blocks;
}

}  // namespace syntony
