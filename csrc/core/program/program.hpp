// Program v1: who does what. The same value whether written by a builder here, an engine, an MSCCL file or a person.
//
// A Program has one agent per rank. An agent has three spaces of slots, and lanes of instructions over them:
//
//      input  [chunk chunk ..]     lane 0:  send  recv_reduce  send ..     each lane runs in order,
//      output [chunk chunk ..]     lane 1:  recv  copy ..                  lanes run concurrently,
//      scratch[chunk chunk ..]     ..                                      `dependencies` order them where data does
//
// Sizes are symbolic. A *block* is a piece of the user's buffers that has one size (see `Collective`); a *chunk* is a
// weighted share of a block; a slot holds one chunk. A Call (call.hpp) gives blocks their addresses and element counts
// at launch, so one proof serves every size, zero included.
//
// The slice loop: every lane runs its whole list in iteration 0, 1, ... In iteration t an instruction of pipeline stage
// `skew` works on slice t - skew, if it exists. Slice s of a chunk is its elements [s*E, (s+1)*E), with E fixed at
// launch in proportion to the chunk's weight (PreparedProgram::slice), so that light and heavy chunks end together;
// empty slices move nothing. A dependency (lane, instruction) means that this instruction of the same agent has
// finished the same slice. Messages between two agents on one channel are one FIFO, fed by one lane and drained by one
// lane, so order alone matches sends with receives.
//
//     stages 0 0 2      iteration 0: a0 b0      1: a1 b1      2: a2 b2 c0      3: a3 b3 c1      ..      9: c7
//
// This is software pipelining (Lam, PLDI'88): a lane need not wait for data that arrives late in a slice before it
// begins the next slice. Stages never decrease along a lane, both ends of a message are in the same stage, and an
// instruction never waits for one in a later stage (the checker proves the last two). So for each slice a lane still
// runs its list in order, and a Program proven for one slice is proven for any number: slices touch disjoint bytes, and
// an order that is right for one slice is right for all and never needs more space in a FIFO.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/program/collective.hpp"
#include "core/program/opcode.hpp"

namespace syntony {

// The tables. A Program consists of five, each with rows of 32-bit numbers below 2^31, so that Python sees the same
// memory as NumPy arrays (bindings/core/program.cpp):
//
//     chunks        block, weight
//     slots         agent, space, chunk                            ordered by agent, space, index in the space
//     instructions  the first 14 numbers of Instruction            ordered by agent, lane, position in the lane
//     operands      space, index: further sources of `reduce`      instruction after instruction
//     dependencies  lane, position: what must be done first        instruction after instruction

enum class Space : std::uint32_t { input, output, scratch };

struct Slot {
  Space space = Space::input;
  std::uint32_t index = 0;
  friend bool operator==(const Slot&, const Slot&) = default;
};

inline constexpr std::int32_t kNoPeer = -1;
inline constexpr std::uint32_t kMostChannel = 65'535, kMostSkew = 65'535;

struct Instruction {
  std::uint32_t agent = 0, lane = 0;
  Opcode opcode = Opcode::nop;
  Slot dst;
  Slot src;
  std::uint32_t count = 1;  // consecutive slots of dst, src and the message
  std::int32_t recv_peer = kNoPeer;
  std::int32_t send_peer = kNoPeer;  // also the peer of one-sided instructions
  std::uint32_t channel = 0;         // at most kMostChannel
  std::uint32_t operand_count = 0;   // further sources of `reduce`
  std::uint32_t dependency_count = 0;
  std::uint32_t skew = 0;                                 // pipeline stage: slices behind its lane's iteration
  std::uint32_t first_operand = 0, first_dependency = 0;  // rows of their tables; filled by Program::validate
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct Dependency {
  std::uint32_t lane = 0;
  std::uint32_t instruction = 0;
  friend bool operator==(const Dependency&, const Dependency&) = default;
};

/// A share of a block: elements [n * before / total, n * (before + weight) / total) of its n, where `before` sums the
/// weights of the block's earlier chunks and `total` those of all. Chunks of a block are contiguous in Program::chunks.
struct Chunk {
  std::uint32_t block = 0;
  std::uint32_t weight = 1;
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

struct SlotRow {
  std::uint32_t agent = 0;
  Space space = Space::input;
  std::uint32_t chunk = 0;
  friend bool operator==(const SlotRow&, const SlotRow&) = default;
};

/// The lanes of an agent, each a span of instructions.
class Lanes {
 public:
  Lanes(const Instruction* table, std::span<const std::uint32_t> starts) : table_(table), starts_(starts) {}
  [[nodiscard]] std::size_t size() const { return starts_.size() - 1; }
  [[nodiscard]] std::span<const Instruction> operator[](std::size_t lane) const {
    return {table_ + starts_[lane], table_ + starts_[lane + 1]};
  }

 private:
  const Instruction* table_;
  std::span<const std::uint32_t> starts_;  // the first row of each lane, and one past the last
};

/// The rows of one agent in the tables.
struct Agent {
  std::span<const SlotRow> input, output, scratch;  // a scratch slot is as large as its chunk
  std::span<const Instruction> instructions;        // of all its lanes
  Lanes lanes;

  [[nodiscard]] std::span<const SlotRow> slots(Space space) const {
    return space == Space::input ? input : space == Space::output ? output : scratch;
  }
};

/// An instruction before it is placed in the tables.
struct Draft {
  Instruction instruction;
  std::vector<Slot> operands;
  std::vector<Dependency> dependencies;
};

/// An agent before it is placed in the tables: what writers of Programs fill.
struct AgentDraft {
  std::vector<std::uint32_t> input, output, scratch;  // slot -> chunk
  std::vector<std::vector<Draft>> lanes;
};

struct Program : std::enable_shared_from_this<Program> {
  std::string name;
  Collective collective = Collective::all_reduce;
  std::uint32_t root = 0;
  std::uint32_t ranks = 0;       // agent i is rank i
  std::uint32_t fifo_depth = 1;  // messages that each connection must be able to hold
  bool out_of_place = true;      // correct if input and output are disjoint memory
  bool in_place = true;          // correct if input and output slots of the same chunk share memory
  bool rounds_per_hop = false;   // 16- and 8-bit floats are rounded at every reduction, not once
  std::vector<Chunk> chunks;
  std::vector<SlotRow> slots;
  std::vector<Instruction> instructions;
  std::vector<Slot> operands;
  std::vector<Dependency> dependencies;

  friend bool operator==(const Program& a, const Program& b);

  /// Appends the rows of the next agent; `ranks` grows. For writers of Programs, who call validate() last.
  void add(const AgentDraft& agent);

  // Computed by validate() for all readers of the tables.
  std::vector<std::uint32_t> space_start;  // 3 per agent, then the end: first row of each space in `slots`
  std::vector<std::uint32_t> lane_start;   // per lane over all agents, then the end: first rows
  std::vector<std::uint32_t> first_lane;   // per agent, then the end: its first entry in lane_start

  /// The rows of an agent. The Program must be validated and outlive them.
  [[nodiscard]] Agent agent(std::uint32_t rank) const;
  [[nodiscard]] std::span<const Slot> operands_of(const Instruction& instruction) const {
    return std::span(operands).subspan(instruction.first_operand, instruction.operand_count);
  }
  [[nodiscard]] std::span<const Dependency> dependencies_of(const Instruction& instruction) const {
    return std::span(dependencies).subspan(instruction.first_dependency, instruction.dependency_count);
  }
  /// "rank 2, lane 0, instruction 5 (recv_reduce)" for a row of `instructions`.
  [[nodiscard]] std::string where(std::size_t row) const;

  [[nodiscard]] std::uint32_t channels() const;       // 1 + the highest channel in use
  [[nodiscard]] std::uint32_t message_slots() const;  // the largest `count` of a message, at least 1
  [[nodiscard]] bool one_sided() const;               // uses peer_read or peer_write
  [[nodiscard]] bool skewed() const;                  // some instruction has a nonzero skew
  /// True if ranks relay blocks that neither start nor end with them: they must then know every block's size.
  [[nodiscard]] bool needs_size_matrix() const;
  /// 64-bit FNV-1a over every field, which ranks compare. Not cryptographic: collisions can be constructed.
  [[nodiscard]] std::uint64_t hash() const;

  /// Checks everything that a reader of the tables needs to stay within its own memory, whoever wrote them: rows in
  /// order; indices, peers and kinds in range; and an instruction only moves between slots of the same chunk, hence of
  /// the same size. Fills the rows' references and starts (above). Throws ProgramError naming rank, lane and
  /// instruction. It is the only validator and always runs; whether a Program is *correct* is decided by the checker
  /// (synth/checker).
  void validate();
};

/// The Program is malformed; what() says where.
class ProgramError : public std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

}  // namespace syntony
