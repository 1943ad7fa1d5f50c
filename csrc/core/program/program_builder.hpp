// Writes a Program from one global, logical order of moves and derives lanes and dependencies.
//
//     ProgramBuilder builder("pair", Collective::all_reduce, 2, 0, {{.block = 0, .weight = 1}});
//     builder.transfer_reduce(1, builder.input(1, 0), 0, builder.output(0, 0), builder.input(0, 0));
//     builder.transfer(0, builder.output(0, 0), 1, builder.output(1, 0));
//     const Program program = builder.finish();
//
// Lanes. A rank has one lane per end of a connection, (send | recv, peer, channel), and one for its copies and
// reductions. So waiting for one peer never holds up traffic with another, and slices flow through relays.
//
// `append` writes a single instruction into a lane that the caller chooses, as needed by passes over a finished Program
// (synth/lowering/passes). A message must be sent before it is received, in the order of the calls.
//
// Dependencies. Between lanes of a rank, the builder orders read-after-write, write-after-read and write-after-write of
// each slot. Input and output slots of the same chunk count as one location, so a Program is ordered both for disjoint
// buffers and for in-place calls. Dependencies that the lane has already waited for are omitted.
//
// No deadlock. Whatever an instruction waits for (its dependencies, its message, room in a FIFO of any depth >= 1)
// comes from an instruction earlier in (iteration, order of calls), so waits cannot form a cycle. Every Program built
// from moves is therefore free of deadlock at fifo_depth 1 and declares that depth. With `append`, messages stay in
// flight between calls, and the Program declares the most that one connection ever held.
//
// Facts. The builder tracks what each slot holds and declares: `rounds_per_hop` if a sum is added into another sum,
// `in_place` unless an input is read after its output was overwritten.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/program/program.hpp"

namespace syntony {

class ProgramBuilder {
 public:
  /// `chunks` as in Program; every rank gets the input and output slots that the collective's table gives it, in chunk
  /// order. Throws std::invalid_argument if ranks, root or chunks do not fit the collective.
  ProgramBuilder(std::string name, Collective collective, std::uint32_t ranks, std::uint32_t root,
                 std::vector<Chunk> chunks);

  /// The slot of `chunk` in the rank's input or output; throws std::invalid_argument if the rank has none.
  [[nodiscard]] Slot input(std::uint32_t rank, std::uint32_t chunk) const;
  [[nodiscard]] Slot output(std::uint32_t rank, std::uint32_t chunk) const;
  /// A new scratch slot, as large as `chunk`.
  [[nodiscard]] Slot scratch(std::uint32_t rank, std::uint32_t chunk);
  /// Where the rank may keep data that passes through it: its output slot of `chunk`, else a new scratch slot.
  [[nodiscard]] Slot place(std::uint32_t rank, std::uint32_t chunk);

  // The moves. Each throws std::invalid_argument if a slot does not exist, if a source holds nothing yet, if an
  // input slot is written, or if the chunks of two slots differ in size.

  void copy(std::uint32_t rank, Slot dst, Slot src);
  /// dst = sources[0] + sources[1] + .., in this order, rounded once. One source is a copy.
  void reduce(std::uint32_t rank, Slot dst, std::span<const Slot> sources);
  /// A send at one rank and a recv at the other, of `count` consecutive slots in one message.
  void transfer(std::uint32_t src_rank, Slot src, std::uint32_t dst_rank, Slot dst, std::uint16_t channel = 0,
                std::uint32_t count = 1);
  /// A send at one rank; at the other, dst = message + operand.
  void transfer_reduce(std::uint32_t src_rank, Slot src, std::uint32_t dst_rank, Slot dst, Slot operand,
                       std::uint16_t channel = 0, std::uint32_t count = 1);

  /// One instruction with its own `count`, peers and channel, in the rank's lane called `lane` (any number; these lanes
  /// are separate from those of the moves above). `operands` are those of a reduce; the instruction's references to
  /// operands and dependencies are filled in here. Also throws if it moves no data or receives a message that was not
  /// sent.
  void append(std::uint32_t rank, std::uint32_t lane, const Instruction& instruction,
              std::span<const Slot> operands = {});

  /// The moves that follow are `slices` behind (Instruction::skew). Throws std::invalid_argument if that is less than
  /// before, so an instruction is never ahead of what it waits for.
  void skew(std::uint16_t slices);

  /// The Program so far, validated. Building may continue.
  [[nodiscard]] Program finish() const;

  [[nodiscard]] std::uint32_t ranks() const { return static_cast<std::uint32_t>(sites_.size()); }

 private:
  struct Lane {
    std::vector<Draft> drafts;
    std::map<std::uint32_t, std::uint32_t> waited;  // other lane -> number of its instructions known to be done
  };
  /// Memory that instructions may race for: one scratch slot, or the input and output slots of one chunk.
  struct Location {
    std::optional<Dependency> writer;
    std::vector<Dependency> readers;  // since the last write
    bool overwritten = false;         // when run in place, the input is gone
  };
  enum class Content : std::uint8_t { nothing, value, sum };
  struct SlotState {
    std::uint32_t chunk = 0;
    std::uint32_t location = 0;
    Content content = Content::nothing;
  };
  enum class Direction : std::uint8_t { local, send, recv, chosen };
  using LaneKey = std::tuple<Direction, std::uint32_t, std::uint16_t>;  // with peer (or lane, if chosen) and channel
  struct Part {                                                         // of a message
    std::uint32_t chunk = 0;
    Content content = Content::nothing;
  };
  using Connection = std::tuple<std::uint32_t, std::uint32_t, std::uint16_t>;  // from, to, channel
  struct Site {                                                                // what the builder knows of one rank
    std::vector<SlotState> slots[3];                                           // by Space
    std::vector<Location> locations;
    std::vector<Lane> lanes;
    std::map<LaneKey, std::uint32_t> lane_of;
  };

  Site& site(std::uint32_t rank);
  SlotState& state(std::uint32_t rank, Slot slot);
  Slot find(std::uint32_t rank, std::uint32_t chunk, Space space) const;
  Content read(std::uint32_t rank, Slot slot);
  void check_write(std::uint32_t rank, Slot dst, std::uint32_t chunk);
  Content sum_of(std::span<const Content> parts);
  std::vector<Part> take_message(std::uint32_t rank, const Instruction& instruction);
  void append(std::uint32_t rank, LaneKey key, const Instruction& instruction, std::span<const Slot> sources,
              std::span<const Slot> targets, std::span<const Content> written, std::span<const Slot> operands = {});

  std::string name_;
  Collective collective_;
  std::uint32_t root_;
  std::vector<Chunk> chunks_;
  std::vector<std::uint64_t> block_weights_;
  std::vector<Site> sites_;
  std::map<Connection, std::deque<std::vector<Part>>> in_flight_;
  std::uint32_t fifo_depth_ = 1;
  std::uint16_t skew_ = 0;
  bool in_place_ = true;
  bool rounds_per_hop_ = false;
};

}  // namespace syntony
