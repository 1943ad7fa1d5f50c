#include "cuda/movements.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

namespace syntony::cuda {
namespace {

Movement movement_of(const Program& program, const Instruction& instruction) {
  const Opcode opcode = instruction.opcode;
  const bool combines =
      opcode == Opcode::recv_reduce || opcode == Opcode::recv_reduce_send || opcode == Opcode::recv_reduce_copy_send;
  const std::uint32_t rank = instruction.agent;
  Movement movement;
  movement.count = instruction.count;
  movement.channel = instruction.channel;
  movement.skew = instruction.skew;
  if (receives(opcode)) movement.recv_peer = instruction.recv_peer;
  if (sends(opcode)) movement.send_peer = instruction.send_peer;
  movement.empty_message = opcode == Opcode::signal || opcode == Opcode::wait;
  movement.shape = opcode == Opcode::send || combines ? instruction.src : instruction.dst;
  movement.shape_rank = rank;
  if (opcode == Opcode::nop || movement.empty_message) return movement;

  const auto peer = static_cast<std::uint32_t>(instruction.send_peer);
  const End message{.rank = rank, .slot = {}, .message = true};
  const End src{.rank = opcode == Opcode::peer_read ? peer : rank, .slot = instruction.src};
  const End dst{.rank = opcode == Opcode::peer_write ? peer : rank, .slot = instruction.dst};
  if (opcode == Opcode::peer_write) movement.shape = instruction.src;
  if (receives(opcode)) movement.sources.push_back(message);
  if (!receives(opcode) || combines) movement.sources.push_back(src);
  for (const Slot operand : program.operands_of(instruction)) {
    movement.sources.push_back({.rank = rank, .slot = operand});
  }
  if (opcode != Opcode::send && opcode != Opcode::recv_reduce_send) movement.destinations.push_back(dst);
  if (sends(opcode)) movement.destinations.push_back(message);
  return movement;
}

/// How often each scratch slot of `rank` is a source or destination, on any rank.
std::vector<std::uint32_t> uses_of_scratch(const Program& program, std::uint32_t rank) {
  std::vector<std::uint32_t> uses(program.agent(rank).scratch.size(), 0);
  for (const Instruction& instruction : program.instructions) {
    if (instruction.agent != rank && !one_sided(instruction.opcode)) continue;
    const Movement movement = movement_of(program, instruction);
    for (const auto* const ends : {&movement.sources, &movement.destinations}) {
      for (const End& end : *ends) {
        if (end.message || end.rank != rank || end.slot.space != Space::scratch) continue;
        for (std::uint32_t k = 0; k < movement.count; ++k) ++uses[end.slot.index + k];
      }
    }
  }
  return uses;
}

/// Joins movements within one lane.
class Joiner {
 public:
  Joiner(const Program& program, std::uint32_t rank, std::uint32_t lane, const std::vector<std::uint32_t>& uses,
         const std::set<std::pair<std::uint32_t, std::uint32_t>>& waited_for)
      : program_(program), rank_(rank), lane_(lane), uses_(uses), waited_for_(waited_for) {}

  /// The lane's movements; `where[i]` is the index of the one that instruction i is part of.
  std::vector<Movement> run(std::vector<std::uint32_t>& where) {
    const std::span<const Instruction> instructions = program_.agent(rank_).lanes[lane_];
    where.resize(instructions.size());
    for (std::uint32_t i = 0; i < instructions.size(); ++i) {
      Movement next = movement_of(program_, instructions[i]);
      next.origin = i;
      const std::span dependencies = program_.dependencies_of(instructions[i]);
      next.dependencies.assign(dependencies.begin(), dependencies.end());
      if (instructions[i].opcode == Opcode::peer_write && write_joins(next)) {
        movements_.back().destinations.push_back(next.destinations[0]);
        movements_.back().origin = i;
        where[i] = last();
        continue;
      }
      std::uint32_t joined = 0;
      if (instructions[i].opcode == Opcode::reduce) joined = take_reads(next);
      movements_.push_back(std::move(next));
      for (std::uint32_t back = 0; back <= joined; ++back) where[i - back] = last();
    }
    return std::move(movements_);
  }

 private:
  [[nodiscard]] std::uint32_t last() const { return static_cast<std::uint32_t>(movements_.size()) - 1; }

  [[nodiscard]] bool write_joins(const Movement& write) const {
    if (movements_.empty()) return false;
    const Movement& before = movements_.back();
    const bool waits = std::ranges::any_of(write.dependencies, [&](const Dependency& on) { return on.lane != lane_; });
    const bool same = std::ranges::any_of(before.destinations, [&](const End& end) {
      return !end.message && end.rank == rank_ && end.slot == write.sources[0].slot;
    });
    return !waits && same && before.count == write.count && before.skew == write.skew && before.send_peer == kNoPeer;
  }

  /// Reads directly before `reduce` that fill its sources become its sources. Returns the number of instructions
  /// removed, counted from the first such read.
  std::uint32_t take_reads(Movement& reduce) {
    std::uint32_t run = 0;
    while (run < movements_.size() && is_read_for(movements_[movements_.size() - 1 - run], reduce)) ++run;
    for (std::uint32_t i = 0; i < run; ++i) {
      Movement& read = movements_.back();
      *source_of(reduce, read) = read.sources[0];
      reduce.dependencies.insert(reduce.dependencies.end(), read.dependencies.begin(), read.dependencies.end());
      movements_.pop_back();
    }
    return run;
  }

  static std::vector<End>::iterator source_of(Movement& reduce, const Movement& read) {
    return std::ranges::find_if(reduce.sources, [&](const End& end) {
      return end.rank == read.destinations[0].rank && end.slot == read.destinations[0].slot;
    });
  }

  [[nodiscard]] bool is_read_for(const Movement& read, Movement& reduce) const {
    if (read.sources.size() != 1 || read.destinations.size() != 1 || read.sources[0].message ||
        read.sources[0].rank == rank_ || read.destinations[0].slot.space != Space::scratch ||
        read.destinations[0].rank != rank_ || read.count != reduce.count || read.skew != reduce.skew ||
        waited_for_.contains({lane_, read.origin})) {
      return false;
    }
    for (std::uint32_t k = 0; k < read.count; ++k) {
      if (uses_[read.destinations[0].slot.index + k] != 2) return false;  // written here, read by `reduce`
    }
    return source_of(reduce, read) != reduce.sources.end();
  }

  const Program& program_;
  std::uint32_t rank_, lane_;
  const std::vector<std::uint32_t>& uses_;
  const std::set<std::pair<std::uint32_t, std::uint32_t>>& waited_for_;  // lane, instruction; by other lanes
  std::vector<Movement> movements_;
};

}  // namespace

RankMovements movements_of(const Program& program, std::uint32_t rank) {
  if (rank >= program.ranks) {
    throw std::invalid_argument("the program " + program.name + " has " + std::to_string(program.ranks) +
                                " ranks, and so no rank " + std::to_string(rank));
  }
  const Agent agent = program.agent(rank);
  const std::vector<std::uint32_t> uses = uses_of_scratch(program, rank);
  std::set<std::pair<std::uint32_t, std::uint32_t>> waited_for;
  for (const Instruction& instruction : agent.instructions) {
    for (const Dependency on : program.dependencies_of(instruction)) {
      if (on.lane != instruction.lane) waited_for.emplace(on.lane, on.instruction);
    }
  }

  RankMovements result;
  std::vector<std::vector<std::uint32_t>> where(agent.lanes.size());
  for (std::uint32_t lane = 0; lane < agent.lanes.size(); ++lane) {
    result.lanes.push_back(Joiner(program, rank, lane, uses, waited_for).run(where[lane]));
  }
  result.scratch_in_use.assign(agent.scratch.size(), false);
  for (std::uint32_t lane = 0; lane < result.lanes.size(); ++lane) {
    for (Movement& movement : result.lanes[lane]) {
      // The lane's order already implies dependencies within it.
      std::erase_if(movement.dependencies, [&](const Dependency& on) { return on.lane == lane; });
      for (Dependency& on : movement.dependencies) on.instruction = where[on.lane][on.instruction];
    }
  }
  for (const auto& lane : result.lanes) {
    for (const Movement& movement : lane) {
      for (const auto* const ends : {&movement.sources, &movement.destinations}) {
        for (const End& end : *ends) {
          if (end.message || end.rank != rank || end.slot.space != Space::scratch) continue;
          for (std::uint32_t k = 0; k < movement.count; ++k) result.scratch_in_use[end.slot.index + k] = true;
        }
      }
    }
  }
  // Slots that only peers touch are in use, too.
  for (const Instruction& instruction : program.instructions) {
    if (!one_sided(instruction.opcode) || instruction.send_peer != static_cast<std::int32_t>(rank)) continue;
    const Slot slot = instruction.opcode == Opcode::peer_read ? instruction.src : instruction.dst;
    if (slot.space != Space::scratch) continue;
    for (std::uint32_t k = 0; k < instruction.count; ++k) result.scratch_in_use[slot.index + k] = true;
  }
  return result;
}

std::vector<std::uint32_t> touched_by(const Program& program, std::uint32_t rank) {
  std::set<std::uint32_t> peers;
  for (const Instruction& instruction : program.agent(rank).instructions) {
    if (one_sided(instruction.opcode)) peers.insert(static_cast<std::uint32_t>(instruction.send_peer));
  }
  return {peers.begin(), peers.end()};
}

}  // namespace syntony::cuda
