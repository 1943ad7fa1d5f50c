#include "core/program/prepared_program.hpp"

#include <bit>
#include <set>
#include <utility>

#include "core/sizes.hpp"

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
  const auto part = [&](std::uint32_t chunk) {
    return static_cast<double>(program_->chunks[chunk].weight) / static_cast<double>(shares_[chunk].total);
  };
  for (std::uint32_t chunk = 0; chunk < shares_.size(); ++chunk) {
    shares_[chunk].total = totals[program_->chunks[chunk].block];
    if (part(chunk) > part(largest_chunk_)) largest_chunk_ = chunk;
  }
  if (program_->ranks < kManyRanks) depth_ = depth_of(*program_);
}

std::uint32_t PreparedProgram::slice_bytes(std::size_t elements, std::size_t element_bytes, std::uint32_t least,
                                           std::uint32_t most, std::size_t sockets) const {
  // While n slices pass, the busiest rank sends n * busiest messages, and nobody sends for hops - busiest messages. And
  // of several sockets, one may have a slice more than another. Each of these should be at most 1/64 of the time. A
  // rank that sends m messages waits for tail * m at the end, which come behind others that are on their way: 1/128,
  // for which slices may be shorter than a slot. And the ends of two slices should be copied or summed while others
  // arrive.
  constexpr std::size_t kFewest = 2, kIdle = 64, kTail = 128, kShortest = 32_KiB;
  if (shares_.empty() || depth_.busiest == 0) return least;
  const std::size_t message = range(largest_chunk_, elements).count * element_bytes * message_slots_;
  const std::size_t idle = depth_.hops - std::min(depth_.hops, depth_.busiest);
  const auto tail = static_cast<std::size_t>(kTail * depth_.tail);
  const std::size_t slices = std::max({kFewest, kIdle * idle / depth_.busiest, kIdle * (sockets - 1), tail});
  const std::size_t shortest = tail > 0 ? std::min<std::size_t>(least, kShortest) : least;
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(std::bit_floor(message / slices), shortest, most));
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
