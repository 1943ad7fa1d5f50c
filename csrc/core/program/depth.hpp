// How long data travels through a Program, compared with how much each rank sends: what decides how long its slices
// should be.
//
//                             hops           sent by the busiest rank      nobody sends for
//      all_gather, direct     1              p - 1                         0
//      all_reduce, a ring     2 (p - 1)      2 (p - 1)                     0
//      broadcast, a chain     p - 1          1                             p - 2 messages: long ones end late
#pragma once

#include <cstdint>

#include "core/program/program.hpp"

namespace syntony {

/// In messages of one slice.
struct ProgramDepth {
  std::uint32_t hops = 0;     // that follow each other, each sent only after the one before has arrived
  std::uint32_t busiest = 0;  // that one rank sends
};

/// `program` must be validated. One that deadlocks is followed as far as it runs.
[[nodiscard]] ProgramDepth depth_of(const Program& program);

}  // namespace syntony
