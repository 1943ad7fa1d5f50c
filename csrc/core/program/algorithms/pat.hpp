// PAT, parallel aggregated trees: one binomial tree per block, all in parallel, farthest hops first.
//
//      n = 8, block 0        step 0    0 --------------------> 4          distance 4: one block in a message
//      (block r: the same,   step 1    0 --------> 2  4 -----> 6          distance 2: two
//      shifted by r)         step 2    0 -> 1  2 -> 3  4 -> 5  6 -> 7     distance 1: four
//
// In each step a rank sends everything it holds in one message, so it takes ceil(log2(n)) hops. Bruck's algorithm takes
// as many, with the distances in the opposite order; here large messages go to near ranks and small ones far, which
// suits a network that is thinner towards its top. reduce_scatter is the reverse: sums move up the tree, near hops
// first. Data lies in scratch in the order of arrival, so messages need no packing.
//
// NCCL 2.23, "Parallel Aggregated Trees" (Jeaugey, arXiv:2506.20252), section 3.
#pragma once

#include <cstdint>

#include "core/program/program.hpp"

namespace syntony {

/// all_gather or reduce_scatter.
[[nodiscard]] Program pat(Collective collective, std::uint32_t ranks);

}  // namespace syntony
