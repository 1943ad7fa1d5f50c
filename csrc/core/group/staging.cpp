#include "core/group/staging.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "core/kernels/kernels.hpp"

namespace syntony {
namespace {

struct Range {
  const std::byte* begin;
  const std::byte* end;
  [[nodiscard]] bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

/// From the first byte of all inputs, or of all outputs, to the last.
template <typename Byte>
Range range_of(std::span<const Block> blocks, Byte* Block::* memory, std::size_t element_bytes) {
  Range range{nullptr, nullptr};
  for (const Block& block : blocks) {
    if (block.*memory == nullptr || block.elements == 0) continue;
    const std::byte* const begin = block.*memory;
    const std::byte* const end = begin + block.elements * element_bytes;
    range = range.end == nullptr ? Range{begin, end} : Range{std::min(range.begin, begin), std::max(range.end, end)};
  }
  return range;
}

std::size_t input_bytes(const Call& call) {
  std::size_t bytes = 0;
  for (const Block& block : call.blocks) bytes += block.input != nullptr ? block.elements * call.element_bytes() : 0;
  return bytes;
}

/// Calls `visit(block, copy, bytes)` for every input; `copy` is its offset in the storage.
template <typename Visit>
void each_input(StagedCall& staged, const Visit& visit) {
  std::size_t used = 0;
  for (Block& block : staged.call.blocks) {
    if (block.input == nullptr || block.elements == 0) continue;
    const std::size_t bytes = block.elements * staged.call.element_bytes();
    visit(block, staged.storage.data() + used, bytes);
    if (!staged.storage.empty()) used += bytes;
  }
}

}  // namespace

bool crossing(const Call& call) {
  const auto range = [bytes = call.element_bytes()](const std::byte* memory, const Block& block) {
    return Range{memory, memory + block.elements * bytes};
  };
  const auto overwrites = [&](const Block& written, const Block& read) {
    const bool in_place = &read == &written && written.input == written.output;
    return !in_place && range(written.output, written).overlaps(range(read.input, read));
  };
  if (call.blocks.size() == 1) {
    const Block& only = call.blocks.front();
    return only.input != nullptr && only.output != nullptr && overwrites(only, only);
  }
  if (!range_of(call.blocks, &Block::input, call.element_bytes())
           .overlaps(range_of(call.blocks, &Block::output, call.element_bytes()))) {
    return false;
  }
  std::vector<const Block*> inputs;
  for (const Block& block : call.blocks) {
    if (block.input != nullptr && block.elements > 0) inputs.push_back(&block);
  }
  return std::ranges::any_of(call.blocks, [&](const Block& written) {
    return written.output != nullptr &&
           std::ranges::any_of(inputs, [&](const Block* read) { return overwrites(written, *read); });
  });
}

std::vector<Call> cut(const Call& call, std::uint32_t ranks) {
  const std::size_t element_bytes = call.element_bytes(), longest = call.longest();
  const std::size_t most =
      std::max<std::size_t>(1, call.options.partition / (element_bytes * blocks_of_rank(call.collective, ranks)));
  std::vector<Call> parts;
  std::size_t first = 0;
  do {  // at least one part, even if empty: ranks wait for each other
    Call& part = parts.emplace_back(call);
    for (Block& block : part.blocks) {
      const std::size_t begin = std::min(first, block.elements);
      if (block.input != nullptr) block.input += begin * element_bytes;
      if (block.output != nullptr) block.output += begin * element_bytes;
      block.elements = std::min(block.elements - begin, most);
    }
    first += most;
  } while (first < longest);
  return parts;
}

StagedCall stage(Call&& call, Selector::Selection&& selection, std::uint32_t ranks, bool crossed,
                 std::uint64_t counts) {
  Descriptor descriptor;
  descriptor.elements = call.elements(ranks);
  descriptor.counts = counts;
  descriptor.program = selection.fingerprint();
  descriptor.root = call.root;
  descriptor.collective = call.collective;
  descriptor.dtype = call.dtype;
  descriptor.op = call.op;
  descriptor.average = call.scaling.average ? 1 : 0;
  StagedCall staged{std::move(call), std::move(selection), descriptor, {}, {}, {}, {}};
  const bool weighs = staged.call.scaling.weighs();
  const bool fits =
      staged.selection.way != Selector::Selection::Way::program || staged.selection.program->program().in_place;
  if (weighs || crossed || !fits) staged.storage.resize(input_bytes(staged.call));
  if (!weighs && !crossed) return staged;
  each_input(staged, [&](Block& block, std::byte* copy, std::size_t bytes) {
    if (weighs) {
      std::byte* const scaled = block.input == block.output && !crossed ? block.output : copy;
      scale(staged.call.dtype, scaled, block.input, block.elements, *staged.call.scaling.factor);
      block.input = scaled;
    } else {
      std::memcpy(copy, block.input, bytes);
      block.input = copy;
    }
  });
  return staged;
}

void fit(StagedCall& staged) {
  if (staged.selection.way != Selector::Selection::Way::program) return;
  const Program& program = staged.selection.program->program();
  if (program.in_place && program.out_of_place) return;
  each_input(staged, [&](Block& block, std::byte* copy, std::size_t bytes) {
    if (block.output == nullptr) return;
    const bool in_place = block.input == block.output;
    if (in_place ? program.in_place : program.out_of_place) return;
    std::byte* const to = in_place ? copy : block.output;
    std::memcpy(to, block.input, bytes);
    block.input = to;
  });
}

}  // namespace syntony
