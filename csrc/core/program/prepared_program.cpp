#include "core/program/prepared_program.hpp"

#include <set>
#include <utility>

namespace syntony {

PreparedProgram::PreparedProgram(std::shared_ptr<const Program> program)
    : program_(std::move(program)),
      hash_(program_->hash()),
      message_slots_(program_->message_slots()),
      needs_size_matrix_(program_->needs_size_matrix()) {
  for (std::uint32_t rank = 0; rank < program_->ranks; ++rank) {
    std::set<std::pair<std::int32_t, std::uint32_t>> connections;  // peer, channel
    for (const Instruction& instruction : program_->agent(rank).instructions) {
      if (sends(instruction.opcode)) connections.emplace(instruction.send_peer, instruction.channel);
    }
    most_connections_ = std::max(most_connections_, static_cast<std::uint32_t>(connections.size()));
  }
  std::vector<std::uint64_t> totals(block_count(program_->collective, program_->ranks), 0);
  shares_.reserve(program_->chunks.size());
  for (const Chunk& chunk : program_->chunks) {
    const std::uint64_t before = totals[chunk.block];
    totals[chunk.block] += chunk.weight;
    heaviest_ = std::max(heaviest_, chunk.weight);
    shares_.push_back({before, before + chunk.weight, 0});
  }
  for (std::size_t i = 0; i < shares_.size(); ++i) shares_[i].total = totals[program_->chunks[i].block];
}

std::uint32_t PreparedProgram::phases(std::size_t slots) const {
  if (message_slots_ <= slots) return 1;
  const auto chunks = static_cast<std::uint32_t>(program_->chunks.size());
  std::uint32_t phases = 1;
  // Try odd numbers only: the chunks of a message are often a power of two apart.
  do {
    phases = std::min(2 * phases + 1, chunks);
  } while (phases < chunks && message_slots(phases) > slots);
  return phases;
}

std::uint32_t PreparedProgram::message_slots(std::uint32_t phases) const {
  if (phases == 1) return message_slots_;
  std::uint32_t most = 1;
  std::vector<std::uint32_t> slots(phases);
  for (const Instruction& instruction : program_->instructions) {
    if (!sends_data(instruction.opcode) || instruction.count <= most) continue;
    const Slot shape = instruction.opcode == Opcode::recv_copy_send ? instruction.dst : instruction.src;
    slots.assign(phases, 0);
    for (const SlotRow& slot :
         program_->agent(instruction.agent).slots(shape.space).subspan(shape.index, instruction.count)) {
      most = std::max(most, ++slots[slot.chunk % phases]);
    }
  }
  return most;
}

}  // namespace syntony
