// A rank's lanes as movements: destinations <- source + source + .., before sizes are known.
//
// Every instruction is one movement. Consecutive instructions of a lane that only pass bytes on become one, and the
// bytes are read and written once:
//
//      peer_read  scratch[0] <- rank 1's input[0]
//      peer_read  scratch[1] <- rank 2's input[0]
//      reduce     output[0]  <- input[0] + scratch[0] + scratch[1]
//      peer_write rank 1's output[0] <- output[0]
//   =>
//      output[0], rank 1's output[0]  <-  input[0] + rank 1's input[0] + rank 2's input[0]
//
// A read joins the reduce if nobody else uses its scratch slot and nobody waits for the read. A write joins if it waits
// only for its own lane. So the lane does the same in the same order, as if it were a little slower.
#pragma once

#include <cstdint>
#include <vector>

#include "core/program/program.hpp"

namespace syntony::cuda {

/// Slots of a rank, or the message.
struct End {
  std::uint32_t rank = 0;
  Slot slot;
  bool message = false;
};

struct Movement {
  std::vector<End> sources;
  std::vector<End> destinations;
  Slot shape;  // of this rank, or the peer's slot whose size it has
  std::uint32_t shape_rank = 0;
  std::uint32_t count = 1;
  std::int32_t recv_peer = kNoPeer;
  std::int32_t send_peer = kNoPeer;
  std::uint32_t channel = 0;
  std::uint32_t skew = 0;
  bool empty_message = false;
  std::uint32_t origin = 0;              // its last instruction
  std::vector<Dependency> dependencies;  // lane of the Program, movement
};

struct RankMovements {
  std::vector<std::vector<Movement>> lanes;
  std::vector<bool> scratch_in_use;  // false for slots that no movement touches any more
};

/// Throws std::invalid_argument if the Program has no such rank.
[[nodiscard]] RankMovements movements_of(const Program& program, std::uint32_t rank);

/// The ranks whose memory `rank` reads or writes directly.
[[nodiscard]] std::vector<std::uint32_t> touched_by(const Program& program, std::uint32_t rank);

}  // namespace syntony::cuda
