// Runs the lanes of one thread block. The first thread, the leader, decides; all threads move bytes.
//
//      leader:  which lane can go on?  ──┐ share   publish: counters, progress ──> which lane can go on? ..
//      all:                              └──────> combine ──────┘ sync
//
// A block has one or more lanes (lane l is in block l % blocks), each resumable, as in the CPU executor: a lane that
// cannot continue stays where it is while the leader checks the next. So lanes that wait for each other may share a
// block, and a Program needs no more blocks than fit on the GPU at once. All blocks of all ranks must be resident.
//
// Memory order. What the threads of a block wrote is published by its leader with a release, after a block barrier; a
// leader that has acquired lets its block read, after a block barrier. Both have system scope.
//
// The code is generic over a Machine: CudaMachine, or host threads in the tests.
//   thread(), threads(), sync()                this thread's place in its block; the block barrier
//   acquire(p), release(p, v), add(p, n)       64-bit words that other blocks, ranks and launches read and write
//   load(p), store(p, v)                       16 aligned bytes
//   load_ll, store_ll, load_ll128, store_ll128 lines of low_latency.hpp
//   nanoseconds(), pause(turn), told(p)        the clock; between two looks; a word that the host writes
//   bulk(), bulk_..                            the copy engine of bulk.hpp
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/bulk.hpp"
#include "cuda/device/combination.hpp"
#include "cuda/device/launch.hpp"
#include "cuda/device/low_latency.hpp"

namespace syntony::cuda {

struct LaneState {
  static constexpr std::uint32_t kFinished = ~0U;
  std::uint32_t instruction = 0;  // the next one,
  std::uint32_t iteration = 0;    // of this iteration; kFinished if there is none
  std::uint32_t first = 0;        // the first with a slice in this iteration
};

/// State shared by the threads of a block.
struct BlockState {
  static constexpr std::uint32_t kStop = ~0U;
  Combination combination;
  std::uint32_t chosen = kStop;  // index in `lanes`
  LaneState lanes[kMostLanesOfABlock];
};

template <class Machine>
class Interpreter {
 public:
  SYNTONY_DEVICE Interpreter(const Machine& machine, const Launch& launch, std::uint32_t block, BlockState& shared)
      : machine_(machine),
        launch_(launch),
        tables_(launch.tables),
        shared_(shared),
        block_(block),
        arena_(launch.arenas[launch.rank]),
        control_(reinterpret_cast<Control*>(arena_)),
        fifos_(reinterpret_cast<FifoRecord*>(arena_ + fifos_offset())),
        progress_(reinterpret_cast<std::uint64_t*>(arena_ + progress_offset(launch.shape))) {}

  SYNTONY_DEVICE void run() {
    if (leads()) begin();
    for (;;) {
      if (leads()) shared_.chosen = choose();
      machine_.sync();
      const std::uint32_t chosen = shared_.chosen;
      if (chosen == BlockState::kStop) break;
      const KernelInstruction& instruction = instruction_of(chosen);
      move(instruction, slice_of(chosen));
      machine_.sync();
      if (leads()) {
        exchange(instruction);
        advance(chosen);
      }
    }
    if (leads()) leave();
  }

 private:
  struct Piece {
    std::byte* data;
    std::uint64_t bytes;
  };

  [[nodiscard]] SYNTONY_DEVICE bool leads() const { return machine_.thread() == 0; }
  [[nodiscard]] SYNTONY_DEVICE std::uint32_t own_lanes() const {
    return (tables_.lane_count - block_ + tables_.blocks - 1) / tables_.blocks;
  }
  [[nodiscard]] SYNTONY_DEVICE std::uint32_t number_of(std::uint32_t own) const {
    return block_ + own * tables_.blocks;
  }
  [[nodiscard]] SYNTONY_DEVICE const KernelInstruction& instruction_of(std::uint32_t own) const {
    return tables_.instructions[tables_.lanes[number_of(own)].first + shared_.lanes[own].instruction];
  }
  [[nodiscard]] SYNTONY_DEVICE std::uint32_t slice_of(std::uint32_t own) const {
    return shared_.lanes[own].iteration - instruction_of(own).skew;
  }

  // ---- the leader -----------------------------------------------------------------------------------------------

  SYNTONY_DEVICE void begin() {
    started_ = machine_.nanoseconds();
    const bool in_trouble = machine_.acquire(&control_->trouble) != 0;
    for (std::uint32_t own = 0; own < own_lanes(); ++own) {
      const KernelLane& lane = tables_.lanes[number_of(own)];
      LaneState& state = shared_.lanes[own];
      state = {};
      const bool nothing = in_trouble || tables_.slices == 0 || lane.length == 0;
      state.iteration = nothing ? LaneState::kFinished : tables_.instructions[lane.first].skew;
    }
  }

  /// The next lane whose instruction can run now and needs all threads; kStop if no lane has anything left.
  /// Instructions that move no bytes are performed in here.
  SYNTONY_DEVICE std::uint32_t choose() {
    const std::uint32_t lanes = own_lanes();
    for (std::uint32_t looks = 0;; ++looks) {
      bool unfinished = false;
      for (std::uint32_t i = 0; i < lanes; ++i) {
        const std::uint32_t own = next_ + i < lanes ? next_ + i : next_ + i - lanes;
        while (shared_.lanes[own].iteration != LaneState::kFinished) {
          const KernelInstruction& instruction = instruction_of(own);
          const std::uint32_t slice = slice_of(own);
          if (!dependencies_done(instruction, slice)) break;
          const bool moves = moves_bytes(instruction, slice);
          if (moves || carries_signal(instruction, slice)) {
            if (!fifos_ready(instruction, slice)) break;
            if (moves) {
              next_ = own + 1 < lanes ? own + 1 : 0;
              return own;
            }
            exchange(instruction);
          }
          advance(own);
        }
        unfinished = unfinished || shared_.lanes[own].iteration != LaneState::kFinished;
      }
      if (!unfinished || gives_up(looks)) return BlockState::kStop;
      machine_.pause(looks);
    }
  }

  [[nodiscard]] SYNTONY_DEVICE bool dependencies_done(const KernelInstruction& instruction, std::uint32_t slice) const {
    for (std::uint32_t i = 0; i < instruction.dependencies; ++i) {
      const KernelDependency& on = tables_.dependencies[instruction.first_dependency + i];
      const std::uint64_t position = std::uint64_t{slice + on.skew} * on.length + on.instruction;
      if (machine_.acquire(progress_ + on.lane) <= position) return false;
    }
    return true;
  }

  [[nodiscard]] SYNTONY_DEVICE static bool takes_part(const KernelInstruction& instruction, std::uint32_t slice) {
    return slice >= instruction.first_slice && slice < instruction.end_slice;
  }
  [[nodiscard]] SYNTONY_DEVICE bool carries_signal(const KernelInstruction& instruction, std::uint32_t slice) const {
    return instruction.empty_message && takes_part(instruction, slice);
  }
  [[nodiscard]] SYNTONY_DEVICE bool moves_bytes(const KernelInstruction& instruction, std::uint32_t slice) const {
    if (instruction.sources == 0) return false;
    for (std::uint32_t k = 0; k < instruction.count; ++k) {
      if (piece(instruction.shape + k, slice).bytes > 0) return true;
    }
    return false;  // both ends of a message know: nothing is sent
  }

  [[nodiscard]] SYNTONY_DEVICE bool fifos_ready(const KernelInstruction& instruction, std::uint32_t slice) const {
    if (instruction.receives != kNone && !message_came(instruction, slice)) return false;
    if (instruction.sends == kNone) return true;
    FifoRecord& fifo = fifos_[instruction.sends];
    return fifo.sent - machine_.acquire(&fifo.head) < launch_.shape.depth;
  }
  [[nodiscard]] SYNTONY_DEVICE bool message_came(const KernelInstruction& instruction, std::uint32_t) const {
    FifoRecord& fifo = fifos_[instruction.receives];
    const std::uint64_t number = fifo.received + 1;
    switch (fifo_protocol(launch_.shape, instruction.receives)) {
      case Protocol::ll:
        return machine_.has_ll(room_of(arena_, instruction.receives, number), static_cast<std::uint32_t>(number));
      case Protocol::ll128:
        return machine_.has_ll128(room_of(arena_, instruction.receives, number), number);
      default:
        return machine_.acquire(&fifo.tail) >= number;
    }
  }

  /// Counts the messages that an instruction has received and sent, and notifies the other ends.
  SYNTONY_DEVICE void exchange(const KernelInstruction& instruction) {
    if (instruction.sends != kNone) {
      FifoRecord& fifo = fifos_[instruction.sends];
      ++fifo.sent;
      if (fifo_protocol(launch_.shape, instruction.sends) == Protocol::simple) {
        machine_.release(&at_peer(instruction.sends).tail, fifo.sent);
      }
    }
    if (instruction.receives != kNone) {
      FifoRecord& fifo = fifos_[instruction.receives];
      ++fifo.received;
      machine_.release(&at_peer(instruction.receives).head, fifo.received);
    }
  }

  /// Moves the lane to its next instruction that has a slice; skews never decrease, so the instructions of an iteration
  /// are adjacent.
  SYNTONY_DEVICE void advance(std::uint32_t own) {
    const KernelLane& lane = tables_.lanes[number_of(own)];
    LaneState& state = shared_.lanes[own];
    const KernelInstruction* const instructions = tables_.instructions + lane.first;
    const bool observed = instructions[state.instruction].observed;
    ++state.instruction;
    if (observed) {
      machine_.release(progress_ + number_of(own), std::uint64_t{state.iteration} * lane.length + state.instruction);
    }
    if (state.instruction < lane.length && instructions[state.instruction].skew <= state.iteration) return;
    ++state.iteration;
    while (state.first < lane.length && instructions[state.first].skew + tables_.slices <= state.iteration)
      ++state.first;
    if (state.first == lane.length) {
      state.iteration = LaneState::kFinished;
      return;
    }
    state.instruction = state.first;
    if (state.iteration < instructions[state.first].skew) state.iteration = instructions[state.first].skew;
  }

  /// True if the host aborts, if this rank is in trouble already, or if a lane has waited for a peer for too long.
  [[nodiscard]] SYNTONY_DEVICE bool gives_up(std::uint32_t looks) {
    constexpr std::uint32_t kLooks = 256;
    if (looks % kLooks != kLooks - 1) return false;
    if (machine_.told(launch_.abort) != 0) {
      report(Trouble::aborted);
      return true;
    }
    if (machine_.acquire(&control_->trouble) != 0) return true;
    return launch_.timeout != 0 && machine_.nanoseconds() - started_ > launch_.timeout && report(Trouble::timed_out);
  }

  /// Records which lane waits for whom. Returns false for a block whose lanes wait only for lanes of other blocks: it
  /// leaves the report to those, unless it is told to stop.
  SYNTONY_DEVICE bool report(Trouble::Kind kind) {
    Trouble trouble;
    trouble.kind = kind;
    trouble.launch = launch_.number;
    for (std::uint32_t own = 0; own < own_lanes() && trouble.peer == kNone; ++own) {
      if (shared_.lanes[own].iteration == LaneState::kFinished) continue;
      const KernelInstruction& instruction = instruction_of(own);
      trouble.lane = tables_.lanes[number_of(own)].origin;
      trouble.instruction = instruction.origin;
      trouble.slice = slice_of(own);
      if (!dependencies_done(instruction, trouble.slice)) continue;
      const bool came = instruction.receives == kNone || message_came(instruction, trouble.slice);
      const std::uint32_t fifo = came ? instruction.sends : instruction.receives;
      if (fifo != kNone) trouble.peer = fifo_peer(launch_.shape, fifo);
    }
    if (trouble.peer == kNone && kind == Trouble::timed_out) return false;
    if (machine_.add(&control_->trouble, 1) == 0) *launch_.trouble = trouble;
    return true;
  }

  /// The last block to leave resets what the next launch needs reset.
  SYNTONY_DEVICE void leave() {
    if (machine_.add(&control_->finished, 1) + 1 != tables_.blocks) return;
    for (std::uint32_t lane = 0; lane < tables_.lane_count; ++lane) progress_[lane] = 0;
    control_->finished = 0;
  }

  // ---- where things lie -----------------------------------------------------------------------------------------

  [[nodiscard]] SYNTONY_DEVICE Piece piece(std::uint32_t slot, std::uint32_t slice) const {
    const KernelSlot& of = tables_.slots[slot];
    const std::uint64_t first = slice * of.slice;
    if (first >= of.bytes) return {nullptr, 0};
    const std::uint64_t left = of.bytes - first;
    return {launch_.bases[of.base] + of.offset + first, left < of.slice ? left : of.slice};
  }
  [[nodiscard]] SYNTONY_DEVICE FifoRecord& at_peer(std::uint32_t fifo) const {
    std::byte* const arena = launch_.arenas[fifo_peer(launch_.shape, fifo)];
    return reinterpret_cast<FifoRecord*>(arena + fifos_offset())[fifo_at_peer(launch_.shape, fifo, launch_.rank)];
  }
  /// The slot for message `number` (counted from 1) of a FIFO, in the arena of its receiver.
  [[nodiscard]] SYNTONY_DEVICE std::byte* room_of(std::byte* arena, std::uint32_t fifo, std::uint64_t number) const {
    const std::uint64_t stride = slot_stride(launch_.shape, fifo_protocol(launch_.shape, fifo));
    return arena + slot_offset(launch_.shape, fifo) + (number - 1) % launch_.shape.depth * stride;
  }

  // ---- all threads ----------------------------------------------------------------------------------------------

  SYNTONY_DEVICE void move(const KernelInstruction& instruction, std::uint32_t slice) {
    std::uint64_t offset = 0;  // in the data of the message
    for (std::uint32_t k = 0; k < instruction.count; ++k) {
      const std::uint64_t bytes = piece(instruction.shape + k, slice).bytes;
      if (bytes > 0) move_piece(instruction, slice, k, bytes, offset);
      offset += piece_stride(tables_.protocol, bytes);
    }
  }

  SYNTONY_DEVICE void move_piece(const KernelInstruction& instruction, std::uint32_t slice, std::uint32_t k,
                                 std::uint64_t bytes, std::uint64_t offset) {
    machine_.sync();  // the previous piece is done with `combination`
    Combination& combination = shared_.combination;
    const bool lines = tables_.protocol != Protocol::simple;
    const bool in = lines && instruction.receives != kNone;
    const bool out = lines && instruction.sends != kNone;
    // With lines, messages have no pointers: an incoming one is first among the ends, an outgoing one last.
    const std::uint32_t first = in ? 1 : 0;
    const std::uint32_t ends = instruction.sources + instruction.destinations - first - (out ? 1 : 0);
    for (std::uint32_t i = machine_.thread(); i < ends; i += machine_.threads()) {
      const std::uint32_t end = first + i;
      combination.pointers[i] = end_of(instruction, tables_.ends[instruction.first_end + end].slot,
                                       end < instruction.sources, slice, k, offset);
    }
    if (leads()) {
      combination.sources = instruction.sources - first;
      combination.destinations = instruction.destinations - (out ? 1 : 0);
      combination.bytes = bytes;
      if (lines) set_lines(instruction, offset, in, out, k + 1 == instruction.count);
    }
    machine_.sync();
    if (in || out) {
      combine_lines(machine_, tables_.protocol, tables_.dtype, tables_.op, combination);
    } else if (combination.sources == 1 && machine_.bulk()) {
      bulk_copy(machine_, combination);
    } else {
      combine(machine_, tables_.dtype, tables_.op, combination);
    }
  }

  [[nodiscard]] SYNTONY_DEVICE std::byte* end_of(const KernelInstruction& instruction, std::uint32_t slot, bool source,
                                                 std::uint32_t slice, std::uint32_t k, std::uint64_t offset) const {
    if (slot != KernelEnd::kMessage) return piece(slot + k, slice).data;
    if (source) return room_of(arena_, instruction.receives, fifos_[instruction.receives].received + 1) + offset;
    std::byte* const peer = launch_.arenas[fifo_peer(launch_.shape, instruction.sends)];
    const std::uint32_t there = fifo_at_peer(launch_.shape, instruction.sends, launch_.rank);
    return room_of(peer, there, fifos_[instruction.sends].sent + 1) + offset;
  }

  SYNTONY_DEVICE void set_lines(const KernelInstruction& instruction, std::uint64_t offset, bool in, bool out,
                                bool last) {
    Combination& combination = shared_.combination;
    const Protocol protocol = tables_.protocol;
    const std::uint64_t before = lines_of(protocol, offset);  // a piece starts at a line
    const std::uint64_t at = before * line_stride(protocol);
    combination.lines_in = nullptr;
    combination.lines_out = nullptr;
    combination.lines_to_fill = 0;
    if (in) {
      combination.flag_in = fifos_[instruction.receives].received + 1;
      combination.lines_in = room_of(arena_, instruction.receives, combination.flag_in) + at;
    }
    if (out) {
      combination.flag_out = fifos_[instruction.sends].sent + 1;
      std::byte* const peer = launch_.arenas[fifo_peer(launch_.shape, instruction.sends)];
      const std::uint32_t there = fifo_at_peer(launch_.shape, instruction.sends, launch_.rank);
      combination.lines_out = room_of(peer, there, combination.flag_out) + at;
      if (last && fills_slots(combination.flag_out, launch_.shape.depth)) {
        combination.lines_to_fill = launch_.shape.line_bytes / line_stride(protocol) - before;
      }
    }
  }

  const Machine& machine_;
  const Launch& launch_;
  const KernelTables& tables_;
  BlockState& shared_;
  const std::uint32_t block_;
  std::byte* const arena_;
  Control* const control_;
  FifoRecord* const fifos_;
  std::uint64_t* const progress_;
  std::uint64_t started_ = 0;  // used by the leader
  std::uint32_t next_ = 0;     // used by the leader
};

}  // namespace syntony::cuda
