// PAT, parallel aggregated trees: one binomial tree per block, all at once, the far hops first.
//
//      n = 8, block 0        step 0    0 --------------------> 4          distance 4: one block in a message
//      (block r: the same,   step 1    0 --------> 2  4 -----> 6          distance 2: two
//      shifted by r)         step 2    0 -> 1  2 -> 3  4 -> 5  6 -> 7     distance 1: four
//
// In each step a rank sends all that it holds in one message, so it takes ceil(log2(n)) hops. Bruck's algorithm has as
// many with the distances in the opposite order; here the large messages go to near ranks and the small ones far, which
// a network that is thinner towards its top wants. reduce_scatter is the same backwards: sums come in over the tree,
// the near hops first. What a rank holds lies in scratch in the order in which it came, so a message needs no packing.
//
// NCCL 2.23, "Parallel Aggregated Trees" (Jeaugey, arXiv:2506.20252), section 3.
#pragma once

#include <cstdint>

#include "core/program/program.hpp"

namespace syntony {

/// all_gather or reduce_scatter.
[[nodiscard]] Program pat(Collective collective, std::uint32_t ranks);

}  // namespace syntony
