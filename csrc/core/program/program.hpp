// Program v1: who does what. One value, whoever wrote it: a builder here, an engine, an MSCCL file, a person.
//
// A Program has one Agent per rank (later: per aggregating switch). An agent has three spaces of slots, and lanes of
// instructions over them:
//
//      input  [chunk chunk ..]     lane 0:  send  recv_reduce  send ..     each lane runs in order,
//      output [chunk chunk ..]     lane 1:  recv  copy ..                  lanes run beside each other,
//      scratch[chunk chunk ..]     ..                                      `dependencies` order them where data does
//
// Sizes are symbolic. A *block* is a piece of the user's buffers that has one size (see `Collective`); a *chunk* is a
// weighted share of a block; a slot holds one chunk. A Binding (binding.hpp) gives blocks their addresses and element
// counts at launch, so one proof serves every size, zero included.
//
// The slice loop: every lane runs its whole list in iteration 0, 1, ... In iteration t an instruction of pipeline stage
// `skew` works on slice t - skew, if there is one. Slice s of a chunk is its elements [s*E, (s+1)*E), with E fixed at
// launch and in proportion to the chunk's weight (PreparedProgram::slice), so that light and heavy chunks end together;
// empty slices move nothing. A dependency (lane, instruction) means: that instruction of the same agent is done with
// the same slice. Messages between two agents on one channel are one FIFO, fed by one lane and drained by one lane, so
// order alone matches sends with receives.
//
//     stages 0 0 2      iteration 0: a0 b0      1: a1 b1      2: a2 b2 c0      3: a3 b3 c1      ..      9: c7
//
// This is software pipelining (Lam, PLDI'88): a lane need not wait for what comes late in a slice before it begins the
// next one. Stages never decrease along a lane, both ends of a message are in the same one, and what an instruction
// waits for is in no later one (the checker proves the last two). So for each slice a lane still runs its list in
// order, and a Program proven for one slice is proven for any number: slices touch disjoint bytes, and an order that is
// right for one slice is right for all of them and never needs more space in a FIFO.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/program/collective.hpp"

namespace syntony {

enum class Space : std::uint8_t { input, output, scratch };

struct Slot {
  Space space = Space::input;
  std::uint32_t index = 0;
  friend bool operator==(const Slot&, const Slot&) = default;
};

enum class Opcode : std::uint8_t {
  nop,                    // carries dependencies only
  copy,                   // dst = src
  reduce,                 // dst = src + operands[0] + operands[1] + ..   n-ary, in this order, rounded once
  send,                   // src -> message to send_peer
  recv,                   // dst = message from recv_peer
  recv_reduce,            // dst = message + src
  recv_copy_send,         // dst = message; message -> send_peer
  recv_reduce_send,       // message + src -> send_peer; nothing is stored
  recv_reduce_copy_send,  // dst = message + src; dst -> send_peer
  peer_read,              // dst = send_peer's slot `src`            one-sided: the peer does nothing; ordered by
  peer_write,             // send_peer's slot `dst` = src            signal and wait alone
  signal,                 // an empty message to send_peer
  wait,                   // the empty message from recv_peer
};
inline constexpr std::uint32_t kOpcodes = 13;
[[nodiscard]] std::string_view name_of(Opcode opcode);
[[nodiscard]] bool sends(Opcode opcode);     // puts a message into a FIFO (signal included)
[[nodiscard]] bool receives(Opcode opcode);  // takes a message from a FIFO (wait included)

inline constexpr std::int32_t kNoPeer = -1;

struct Instruction {
  Opcode opcode = Opcode::nop;
  Slot dst;
  Slot src;
  std::uint32_t count = 1;  // consecutive slots of dst, src and the message
  std::int32_t recv_peer = kNoPeer;
  std::int32_t send_peer = kNoPeer;  // the peer of one-sided instructions too
  std::uint16_t channel = 0;
  std::uint16_t skew = 0;                                    // pipeline stage: slices behind its lane's iteration
  std::uint32_t first_operand = 0, operand_count = 0;        // further sources of `reduce`, in Agent::operands
  std::uint32_t first_dependency = 0, dependency_count = 0;  // in Agent::dependencies
};

struct Dependency {
  std::uint32_t lane = 0;
  std::uint32_t instruction = 0;
  friend bool operator==(const Dependency&, const Dependency&) = default;
};

struct Agent {
  std::vector<std::uint32_t> input, output, scratch;  // slot -> chunk (a scratch slot is as large as its chunk)
  std::vector<std::vector<Instruction>> lanes;
  std::vector<Slot> operands;
  std::vector<Dependency> dependencies;
};

/// A share of a block: elements [n * before / total, n * (before + weight) / total) of its n, where `before` sums the
/// weights of the block's earlier chunks and `total` all of them. Chunks of a block are contiguous in Program::chunks.
struct Chunk {
  std::uint32_t block = 0;
  std::uint32_t weight = 1;
};

struct Program {
  std::string name;
  Collective collective = Collective::all_reduce;
  std::uint32_t root = 0;
  std::vector<Chunk> chunks;
  std::vector<Agent> agents;     // agent i is rank i
  std::uint32_t fifo_depth = 1;  // messages that one connection must be able to hold
  bool out_of_place = true;      // right when input and output are disjoint memory
  bool in_place = true;          // right when input and output slots of the same chunk are the same memory
  bool rounds_per_hop = false;   // 16- and 8-bit floats are rounded at every reduction, not once

  [[nodiscard]] std::uint32_t ranks() const { return static_cast<std::uint32_t>(agents.size()); }
  [[nodiscard]] std::uint32_t channels() const;       // 1 + the highest channel in use
  [[nodiscard]] std::uint32_t message_slots() const;  // the largest `count` of a message, at least 1
  [[nodiscard]] bool one_sided() const;               // uses peer_read or peer_write
  /// Relays data between blocks it neither starts nor ends at: ranks must know every block's size, not only their own.
  [[nodiscard]] bool needs_size_matrix() const;
  /// 64-bit FNV-1a over every field: what ranks agree on. Anybody can find two Programs with one hash.
  [[nodiscard]] std::uint64_t hash() const;

  /// All that an executor needs to stay in its own memory, whoever wrote the Program: indices, peers and kinds in
  /// range, and slots that an instruction moves between of the same chunk, hence of the same size. Throws
  /// std::invalid_argument naming agent, lane and instruction. Correctness is the checker's word (synth/checker).
  void validate() const;
};

}  // namespace syntony
