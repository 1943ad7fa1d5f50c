// The ring: every rank talks only to its two neighbours.
//
//      0 -> 1 -> 2        all_reduce: the data is cut into n chunks. Chunk c starts at rank c+1 and collects every
//      rank's ^         |        share on its way round to rank c (n-1 hops); then the sum goes round once more. At any
//      time 5 <- 4 <- 3        each link carries another chunk, so every link sends 2 (n-1)/n of the data: no algorithm
//      moves
//                         less per rank (Patarasu and Yuan, 2009). The cost is 2 (n-1) hops.
//
// reduce_scatter is the first half, all_gather the second. broadcast and reduce are a chain through all ranks, which
// slices turn into a pipeline. all_to_all, gather and scatter are relayed the shorter way round.
#pragma once

#include <cstdint>

#include "core/program/program.hpp"

namespace syntony {

[[nodiscard]] Program ring(Collective collective, std::uint32_t ranks, std::uint32_t root);

}  // namespace syntony
