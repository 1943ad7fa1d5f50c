// A common time axis for ranks on several hosts: the offset of this host's clock from that of the group's rank 0.
//
//     leader of a box              its parent        the leader asks a few times; in the fastest exchange,
//       t0 ──── what time? ───────► |                the parent read its clock midway between asking and hearing:
//       t1 ◄─── rank 0's ────────── |                offset = theirs - (t0 + t1) / 2, wrong by (t1 - t0) / 2 at most
//       └─ answers its children, and tells the ranks of its box: they share its clock
//
// Boxes form a binomial tree below rank 0's (box 6 asks 4, 4 asks 0). It takes as many rounds as the number of boxes
// has binary digits, no rank has more children than that, and the errors along a path add up.
#pragma once

#include <cstdint>

namespace syntony {

class Communicator;

/// Nanoseconds to add to nanoseconds_now() to get rank 0's. Collective if there are several hosts, else 0 immediately.
[[nodiscard]] std::int64_t clock_offset_to_rank_0(Communicator& group);

}  // namespace syntony
