#include "core/program/prepared_program.hpp"

#include <array>
#include <ranges>
#include <set>
#include <span>
#include <utility>

namespace syntony {

PreparedProgram::PreparedProgram(Program program)
    : program_(std::move(program)),
      hash_(program_.hash()),
      message_slots_(program_.message_slots()),
      needs_size_matrix_(program_.needs_size_matrix()) {
  for (const Agent& agent : program_.agents) {
    std::set<std::pair<std::int32_t, std::uint16_t>> connections;  // peer, channel
    for (const auto& lane : agent.lanes) {
      for (const Instruction& instruction : lane) {
        if (sends(instruction.opcode)) connections.emplace(instruction.send_peer, instruction.channel);
      }
    }
    most_connections_ = std::max(most_connections_, static_cast<std::uint32_t>(connections.size()));
  }
  std::vector<std::uint64_t> totals(block_count(program_.collective, program_.ranks()), 0);
  shares_.reserve(program_.chunks.size());
  for (const Chunk& chunk : program_.chunks) {
    const std::uint64_t before = totals[chunk.block];
    totals[chunk.block] += chunk.weight;
    heaviest_ = std::max(heaviest_, chunk.weight);
    shares_.push_back({before, before + chunk.weight, 0});
  }
  for (std::size_t i = 0; i < shares_.size(); ++i) shares_[i].total = totals[program_.chunks[i].block];
}

std::uint32_t PreparedProgram::phases(std::size_t slots) const {
  if (message_slots_ <= slots) return 1;
  const auto chunks = static_cast<std::uint32_t>(program_.chunks.size());
  std::uint32_t phases = 1;
  // Odd numbers: the chunks of a message are often a power of two apart.
  do {
    phases = std::min(2 * phases + 1, chunks);
  } while (phases < chunks && message_slots(phases) > slots);
  return phases;
}

std::uint32_t PreparedProgram::message_slots(std::uint32_t phases) const {
  if (phases == 1) return message_slots_;
  std::uint32_t most = 1;
  std::vector<std::uint32_t> slots(phases);
  for (const Agent& agent : program_.agents) {
    const std::array<std::span<const std::uint32_t>, 3> spaces{agent.input, agent.output, agent.scratch};
    for (const Instruction& instruction : agent.lanes | std::views::join) {
      if (!sends(instruction.opcode) || instruction.opcode == Opcode::signal || instruction.count <= most) continue;
      const Slot shape = instruction.opcode == Opcode::recv_copy_send ? instruction.dst : instruction.src;
      slots.assign(phases, 0);
      for (const std::uint32_t chunk :
           spaces[static_cast<std::size_t>(shape.space)].subspan(shape.index, instruction.count)) {
        most = std::max(most, ++slots[chunk % phases]);
      }
    }
  }
  return most;
}

}  // namespace syntony
