// The CPU executor: runs one rank's part of a Program over real buffers, one non-blocking step at a time.
//
// Lanes are resumable: each is a pair (iteration, instruction) that advances while its dependencies are done and its
// streams have room or data, and otherwise stays where it is. Nothing blocks in here, so one thread runs any number of
// lanes of any number of Executions (the progress engine decides which).
//
// A message is one frame: `count` slot slices packed one after another. Both ends derive its length from the Binding,
// and an empty message is not sent at all. If blocks differ in size (not Call::even), slice 0 of every message is sent
// even if empty and carries the length of the whole message, because one end may believe that there is nothing to send.
//
// If a message has more slots than its frame has room for elements, chunks move in phases: slice s moves only the
// chunks of phase s mod P, the next elements of each. So a slice of any message fits a frame, and because slices still
// touch disjoint bytes in the same order on all ranks, what is proven for one slice holds for all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "core/call.hpp"
#include "core/program/prepared_program.hpp"
#include "core/transport.hpp"

namespace syntony {

/// The streams of one operation in flight.
struct Wire {
  std::span<Transport* const> transports;  // by peer; null for this rank
  std::uint32_t window = 0;
  std::uint32_t slot_bytes = 0;
  FrameHeader header;         // token, group, sequence, fingerprint, priority of every frame
  std::span<SentBytes> sent;  // by peer: where Recorder counts the bytes sent
};

/// How far an Execution may go in one step, so that others get their turn between its slices.
struct Pace {
  std::uint32_t instructions = 8;  // of each lane
  std::uint32_t frames = ~0U;      // in flight on each stream
};

/// A frame that is not the one the Program expects next on this stream.
struct UnexpectedFrame : std::exception {
  UnexpectedFrame(std::uint32_t from, const FrameHeader& wanted, const FrameHeader& came)
      : peer(from), expected(wanted), found(came) {}
  [[nodiscard]] const char* what() const noexcept override { return "an unexpected frame"; }

  std::uint32_t peer;
  FrameHeader expected;
  FrameHeader found;
};

class Execution {
 public:
  /// `scratch` has scratch_bytes(..). The call's memory, scratch and Program must outlive the Execution.
  Execution(const PreparedProgram& program, std::uint32_t rank, const Call& call, std::span<std::byte> scratch,
            const Wire& wire);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;
  /// Nothing is received into the call's memory afterwards.
  ~Execution();

  [[nodiscard]] static std::size_t scratch_bytes(const PreparedProgram& program, std::uint32_t rank, const Call& call);

  /// Advances every lane as far as possible now, at most at `pace`. True if anything moved. Throws UnexpectedFrame.
  bool step(const Pace& pace = {});
  [[nodiscard]] bool done() const { return unfinished_lanes_ == 0; }
  /// The peers whose frames or free slots the blocked lanes need.
  [[nodiscard]] std::vector<std::uint32_t> waiting_for() const;

 private:
  struct BoundSlot {
    std::byte* data = nullptr;
    std::size_t elements = 0;
    std::size_t slice = 1;    // elements of each slice but the last
    std::uint32_t phase = 0;  // of phases_
  };
  struct Lane {
    std::uint32_t instruction = 0;  // the next one,
    std::uint32_t iteration = 0;    // of this iteration; of `finished` if there is none
    std::uint32_t first = 0;        // the first with a slice in this iteration
    std::uint32_t expected = 0;     // number of next instructions that have announced where their messages belong
    static constexpr std::uint32_t finished = ~0U;
  };
  struct Piece {
    std::byte* data;
    std::size_t elements;
  };

  /// Performs the lane's next instruction, if that can happen now and keeps at most `frames` on their way.
  bool step(std::size_t lane, std::uint32_t frames);
  /// Moves the lane to its next instruction that has a slice. Skews never decrease, so the instructions of an iteration
  /// are adjacent.
  void advance(Lane& lane, std::span<const Instruction> instructions) const;
  [[nodiscard]] Piece piece(Slot slot, std::uint32_t slice) const;
  [[nodiscard]] std::size_t message_elements(Slot first, std::uint32_t count, std::uint32_t slice) const;
  /// Bytes of the message over all slices if its two ends compare them, else 0.
  [[nodiscard]] std::uint64_t message_total(Slot first, std::uint32_t count) const;
  [[nodiscard]] const BoundSlot& bound(Slot slot) const {
    return slots_[first_slot_[static_cast<std::size_t>(slot.space)] + slot.index];
  }
  [[nodiscard]] bool ready(const Instruction& instruction, std::uint32_t slice) const;
  bool perform(const Instruction& instruction, std::uint32_t slice, std::uint32_t frames);
  /// Announces to the transport where the lane's upcoming messages belong, if contiguous in memory.
  void expect_ahead(Lane& lane, std::span<const Instruction> instructions) const;
  void reduce_locally(const Instruction& instruction, std::uint32_t slice);
  /// Copies a piece of `slot` to its destination, bypassing the caches if the slot has `streamed` bytes or more.
  void place(Slot slot, Piece to, const std::byte* from, std::size_t streamed) const;
  [[nodiscard]] Sender& sender(const Instruction& instruction) const;
  [[nodiscard]] Receiver& receiver(const Instruction& instruction) const;
  [[nodiscard]] FrameHeader header(const Instruction& instruction, std::uint32_t slice, std::size_t bytes,
                                   std::uint64_t total) const;
  void check(const FrameHeader& found, const Instruction& instruction, const FrameHeader& expected) const;

  const Program& program_;
  Agent agent_;
  DType dtype_;
  ReduceOp op_;
  bool uneven_;
  std::size_t element_bytes_;
  Wire wire_;
  std::uint32_t phases_ = 1;
  std::uint32_t slices_ = 0;
  std::size_t unfinished_lanes_ = 0;
  std::vector<BoundSlot> slots_;           // input, output, scratch, one after another
  std::array<std::size_t, 3> first_slot_;  // where each space starts in slots_
  std::vector<Lane> lanes_;
  std::vector<std::size_t> going_;  // of many lanes, those that have not stopped in this step
};

}  // namespace syntony
