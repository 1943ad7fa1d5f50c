// How long data travels through a Program, compared with how much each rank sends: what decides how long its slices
// should be.
//
//                             hops           sent by the busiest rank      nobody sends for
//      all_gather, direct     1              p - 1                         0
//      all_reduce, a ring     2 (p - 1)      2 (p - 1)                     0
//      broadcast, a chain     p - 1          1                             p - 2 messages: long ones end late
//
// A rank may also have sent all and wait for more. With a slow wire, as has one without a share in all_reduce,
// `two_shot`, it is what the others wait for: it has sent its data, p - 1 messages, and then come as many sums of them.
#pragma once

#include <cstdint>

#include "core/program/program.hpp"

namespace syntony {

/// In messages of one slice.
struct ProgramDepth {
  std::uint32_t hops = 0;     // that follow each other, each sent only after the one before has arrived
  std::uint32_t busiest = 0;  // that one rank sends
  double tail = 0;            // that one rank receives after what answers its last, for each that it sends
};

/// `program` must be validated. One that deadlocks is followed as far as it runs.
[[nodiscard]] ProgramDepth depth_of(const Program& program);

}  // namespace syntony
