#include "core/program/program.hpp"

#include <algorithm>
#include <array>
#include <tuple>

namespace syntony {
namespace {

/// 64-bit FNV-1a over little-endian bytes, the same on every machine.
class Fnv1a {
 public:
  template <typename Integer>
  void add(Integer value) {
    for (std::size_t byte = 0; byte < sizeof(Integer); ++byte) {
      state_ = (state_ ^ ((static_cast<std::uint64_t>(value) >> (8 * byte)) & 0xffU)) * 0x100000001b3ULL;
    }
  }
  void add(Slot slot) {
    add(static_cast<std::uint8_t>(slot.space));
    add(slot.index);
  }
  void add(std::span<const SlotRow> slots) {
    add(slots.size());
    for (const SlotRow& slot : slots) add(slot.chunk);
  }
  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325ULL;
};

}  // namespace

Collective collective_named(std::string_view name) {
  const auto found = std::ranges::find(kCollectives, name, &CollectiveFacts::name);
  if (found != kCollectives.end()) return static_cast<Collective>(found - kCollectives.begin());
  std::string message = "there is no collective '" + std::string(name) + "'; there are";
  for (const CollectiveFacts& known : kCollectives) {
    message += (known.name == kCollectives.front().name ? " " : ", ") + std::string(known.name);
  }
  throw std::invalid_argument(message);
}

bool operator==(const Program& a, const Program& b) {
  const auto all = [](const Program& p) {
    return std::tie(p.name, p.collective, p.root, p.ranks, p.fifo_depth, p.out_of_place, p.in_place, p.rounds_per_hop,
                    p.chunks, p.slots, p.instructions, p.operands, p.dependencies);
  };
  return all(a) == all(b);
}

void Program::add(const AgentDraft& agent) {
  const std::uint32_t rank = ranks++;
  const std::array<const std::vector<std::uint32_t>*, 3> spaces{&agent.input, &agent.output, &agent.scratch};
  for (std::uint32_t space = 0; space < spaces.size(); ++space) {
    for (const std::uint32_t chunk : *spaces[space]) slots.push_back({rank, static_cast<Space>(space), chunk});
  }
  for (std::uint32_t lane = 0; lane < agent.lanes.size(); ++lane) {
    for (const Draft& draft : agent.lanes[lane]) {
      Instruction& row = instructions.emplace_back(draft.instruction);
      row.agent = rank;
      row.lane = lane;
      row.operand_count = static_cast<std::uint32_t>(draft.operands.size());
      row.dependency_count = static_cast<std::uint32_t>(draft.dependencies.size());
      operands.insert(operands.end(), draft.operands.begin(), draft.operands.end());
      dependencies.insert(dependencies.end(), draft.dependencies.begin(), draft.dependencies.end());
    }
  }
}

Agent Program::agent(std::uint32_t rank) const {
  const auto space = [&](std::size_t number) {
    const std::size_t at = std::size_t{rank} * 3 + number;
    return std::span(slots).subspan(space_start[at], space_start[at + 1] - space_start[at]);
  };
  const std::span starts = std::span(lane_start).subspan(first_lane[rank], first_lane[rank + 1] - first_lane[rank] + 1);
  return {.input = space(0),
          .output = space(1),
          .scratch = space(2),
          .instructions = std::span(instructions).subspan(starts.front(), starts.back() - starts.front()),
          .lanes = Lanes(instructions.data(), starts)};
}

std::string Program::where(std::size_t row) const {
  const Instruction& at = instructions[row];
  const auto same_lane = [&](const Instruction& other) { return other.agent == at.agent && other.lane == at.lane; };
  std::size_t first = row;
  while (first > 0 && same_lane(instructions[first - 1])) --first;
  const auto opcode = static_cast<std::size_t>(at.opcode);
  const auto number = [](auto value) { return std::to_string(static_cast<std::int32_t>(value)); };
  return "rank " + number(at.agent) + ", lane " + number(at.lane) + ", instruction " + std::to_string(row - first) +
         " (" + (opcode < kOpcodes.size() ? std::string(name_of(at.opcode)) : "opcode " + number(at.opcode)) + ")";
}

std::uint32_t Program::channels() const {
  std::uint32_t highest = 0;
  for (const Instruction& instruction : instructions) {
    if (sends(instruction.opcode) || receives(instruction.opcode)) highest = std::max(highest, instruction.channel);
  }
  return highest + 1;
}

std::uint32_t Program::message_slots() const {
  std::uint32_t largest = 1;
  for (const Instruction& instruction : instructions) {
    const bool receives_data = receives(instruction.opcode) && instruction.opcode != Opcode::wait;
    if (sends_data(instruction.opcode) || receives_data) largest = std::max(largest, instruction.count);
  }
  return largest;
}

bool Program::one_sided() const {
  return std::ranges::any_of(instructions, [](const Instruction& i) { return syntony::one_sided(i.opcode); });
}

bool Program::skewed() const {
  return std::ranges::any_of(instructions, [](const Instruction& i) { return i.skew > 0; });
}

bool Program::needs_size_matrix() const {
  return std::ranges::any_of(slots, [&](const SlotRow& slot) {
    if (slot.space != Space::scratch) return false;
    const std::uint32_t block = chunks[slot.chunk].block;
    return !starts_with(collective, ranks, root, slot.agent, block) &&
           !ends_with(collective, ranks, root, slot.agent, block);
  });
}

std::uint64_t Program::hash() const {
  Fnv1a hash;
  hash.add(std::uint64_t{name.size()});
  for (const char character : name) hash.add(static_cast<unsigned char>(character));
  hash.add(static_cast<std::uint8_t>(collective));
  hash.add(root);
  hash.add(fifo_depth);
  hash.add(static_cast<std::uint8_t>(out_of_place));
  hash.add(static_cast<std::uint8_t>(in_place));
  hash.add(static_cast<std::uint8_t>(rounds_per_hop));
  hash.add(chunks.size());
  for (const Chunk& chunk : chunks) {
    hash.add(chunk.block);
    hash.add(chunk.weight);
  }
  hash.add(std::size_t{ranks});
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const Agent mine = agent(rank);
    hash.add(mine.input);
    hash.add(mine.output);
    hash.add(mine.scratch);
    hash.add(mine.lanes.size());
    for (std::size_t lane = 0; lane < mine.lanes.size(); ++lane) {
      hash.add(mine.lanes[lane].size());
      for (const Instruction& instruction : mine.lanes[lane]) {
        hash.add(static_cast<std::uint8_t>(instruction.opcode));
        hash.add(instruction.dst);
        hash.add(instruction.src);
        hash.add(instruction.count);
        hash.add(static_cast<std::uint32_t>(instruction.recv_peer));
        hash.add(static_cast<std::uint32_t>(instruction.send_peer));
        hash.add(static_cast<std::uint16_t>(instruction.channel));
        hash.add(instruction.operand_count);
        for (const Slot operand : operands_of(instruction)) hash.add(operand);
        hash.add(instruction.dependency_count);
        for (const Dependency on : dependencies_of(instruction)) {
          hash.add(on.lane);
          hash.add(on.instruction);
        }
      }
    }
  }
  if (skewed()) {  // Programs without skews keep the hash they had before skews existed
    for (const Instruction& instruction : instructions) hash.add(static_cast<std::uint16_t>(instruction.skew));
  }
  return hash.value();
}

}  // namespace syntony
