// Direct exchange: every rank sends what it has straight to the rank that must end with it.
//
//      0 --- 1        One hop: the lowest latency there is, and nothing is relayed. Sums are n-ary in rank order at
//      | \ / |        the rank that keeps them, so 16- and 8-bit floats are rounded once, not once per hop.
//      | / \ |
//      3 --- 2        `direct` is the table of collectives itself, read as moves. For all_reduce that means that all
//                     send everything to all and everybody sums (one shot: n-1 times the bytes, one hop).
//                     `two_shot` halves the work: rank c sums share c of the data, then hands it to everybody.
//                     `pairwise` is either with sums of pairs, and of pairs of pairs: ((0+1)+(2+3)). A process that
//                     sums in this way what all ranks have gets the same bits, also where each rank has such a sum.
#pragma once

#include <cstdint>

#include "core/program/program.hpp"

namespace syntony {

[[nodiscard]] Program direct(Collective collective, std::uint32_t ranks, std::uint32_t root);
[[nodiscard]] Program two_shot_all_reduce(std::uint32_t ranks);
/// all_reduce or reduce_scatter.
[[nodiscard]] Program pairwise(Collective collective, std::uint32_t ranks);

}  // namespace syntony
