// A rank's lanes as movements: destinations <- source + source + .., before sizes are known.
//
// Every instruction is one movement. Where instructions that follow each other in a lane only hand bytes on, they
// become one, and the bytes are read and written once:
//
//      peer_read  scratch[0] <- rank 1's input[0]
//      peer_read  scratch[1] <- rank 2's input[0]
//      reduce     output[0]  <- input[0] + scratch[0] + scratch[1]
//      peer_write rank 1's output[0] <- output[0]
//   =>
//      output[0], rank 1's output[0]  <-  input[0] + rank 1's input[0] + rank 2's input[0]
//
// A read joins the reduce when nobody else has to do with its scratch slot and nobody waits for the read. A write joins
// when it waits for its own lane only. So the lane does the same in the same order, as if it were a little slower.
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
  Slot shape;  // of this rank, or the peer's slot that it is as large as
  std::uint32_t shape_rank = 0;
  std::uint32_t count = 1;
  std::int32_t recv_peer = kNoPeer;
  std::int32_t send_peer = kNoPeer;
  std::uint32_t channel = 0;
  std::uint32_t skew = 0;
  bool empty_message = false;
  std::uint32_t origin = 0;              // the last instruction that is in it
  std::vector<Dependency> dependencies;  // lane of the Program, movement
};

struct RankMovements {
  std::vector<std::vector<Movement>> lanes;
  std::vector<bool> scratch_in_use;  // slots that no movement touches any more are not in use
};

/// Throws std::invalid_argument when the Program has no such rank.
[[nodiscard]] RankMovements movements_of(const Program& program, std::uint32_t rank);

/// The ranks whose memory `rank` reads or writes itself.
[[nodiscard]] std::vector<std::uint32_t> touched_by(const Program& program, std::uint32_t rank);

}  // namespace syntony::cuda
