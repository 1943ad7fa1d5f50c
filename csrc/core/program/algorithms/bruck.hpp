// Bruck's algorithm: ceil(log2(n)) steps at distance 1, 2, 4 .., for any n.
//
//      all_gather, n = 6      step 0      step 1          step 2         After step k a rank holds the blocks of itself
//      rank 0 holds           0           0 1             0 1 2 3        and the 2^(k+1) - 1 ranks after it. It sends
//                             + 1         + 2 3           + 4 5          them to the rank 2^(k+1) before it.
//
// all_to_all: a block that must go d ranks ahead goes 2^k ahead in step k for each set bit k of d. So a message carries
// half of the blocks, and each block travels as many hops as d has set bits: n/2 log2(n) blocks of traffic instead of n
// - 1, in log2(n) messages instead of n - 1. For very small blocks. Messages are packed by copies.
//
// Bruck, Ho, Kipnis, Upfal, Weathersby (IEEE TPDS 8(11), 1997), sections 3 and 4.
#pragma once

#include <cstdint>

#include "core/program/program.hpp"

namespace syntony {

/// all_gather or all_to_all.
[[nodiscard]] Program bruck(Collective collective, std::uint32_t ranks);

}  // namespace syntony
