// One time axis for ranks on several hosts: how far this host's clock is from that of the group's rank 0.
//
//      leader of a box              rank 0            the leader asks a few times; of the answer that came back
//      soonest,
//        t0 ──── what time? ───────► |                the middle of asking and hearing was when rank 0 looked:
//        t1 ◄─── theirs ──────────── |                offset = theirs - (t0 + t1) / 2, wrong by (t1 - t0) / 2 at most
//        └─ tells the ranks of its box: they share its clock
#pragma once

#include <cstdint>

namespace syntony {

class Communicator;

/// Nanoseconds to add to nanoseconds_now() for rank 0's. Collective where there are several hosts, else 0 at once.
[[nodiscard]] std::int64_t clock_offset_to_rank_0(Communicator& group);

}  // namespace syntony
