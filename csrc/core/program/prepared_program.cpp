#include "core/program/prepared_program.hpp"

#include <set>
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

}  // namespace syntony
