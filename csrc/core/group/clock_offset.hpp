// One time axis for ranks on several hosts: how far this host's clock is from that of the group's rank 0.
//
//      leader of a box              its parent        the leader asks a few times; of the answer that came back
//      soonest,
//        t0 ──── what time? ───────► |                the middle of asking and hearing was when the parent looked:
//        t1 ◄─── rank 0's ────────── |                offset = theirs - (t0 + t1) / 2, wrong by (t1 - t0) / 2 at most
//        └─ answers its children, and tells the ranks of its box: they share its clock
//
// Boxes form a binomial tree below rank 0's (box 6 asks 4, 4 asks 0): as many rounds as the number of boxes has binary
// digits, no rank with more children than that, and the errors of a path add up.
#pragma once

#include <cstdint>

namespace syntony {

class Communicator;

/// Nanoseconds to add to nanoseconds_now() for rank 0's. Collective where there are several hosts, else 0 at once.
[[nodiscard]] std::int64_t clock_offset_to_rank_0(Communicator& group);

}  // namespace syntony
