// Direct exchange: every rank sends its data straight to the ranks that must end up with it.
//
//     0 --- 1        One hop: the lowest latency there is, and nothing is relayed. Sums are n-ary in rank order at
//     | \ / |        the rank that keeps them, so 16- and 8-bit floats are rounded once, not once per hop.
//     | / \ |
//     3 --- 2        `direct` is the table of collectives itself, read as moves. For all_reduce, all ranks send
//                    everything to all and everybody sums (one shot: n-1 times the bytes, one hop).
//                    `two_shot` halves the work: rank c sums share c of the data, then sends it to everybody.
//                    `pairwise` is either one with sums of pairs, and of pairs of pairs: ((0+1)+(2+3)). One process
//                    that sums the data of all ranks this way gets the same bits, even if each rank holds such a sum.
//
// Shares. In `two_shot`, a rank with share w of n ranks' data sends 1 - w of its own and w to each of the others, in
// total 1 + (n-2) w; it receives as much. So a rank with a slower wire gets a smaller share, and a rank that is always
// late gets none: when it arrives, the others have summed among themselves. If rank r sends at rate b(r) and nothing
// else limits, no all_reduce of one unit takes less than the largest of 1 / b(r) and 2 (n-1) / sum b, because 2 (n-1)
// units must be sent. `shares_for` attains this bound: w = (b T - 1) / (n-2), or 0 if that is negative, with T such
// that the shares sum to 1. StragglAR (arXiv 2505.23523) and OptCC (arXiv 2606.01680) have other programs for one late,
// or slow, rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/program/program.hpp"

namespace syntony {

[[nodiscard]] Program direct(Collective collective, std::uint32_t ranks, std::uint32_t root);

/// The part of an all_reduce that each rank sums, in proportion; 0: nothing.
using Shares = std::vector<std::uint32_t>;

/// The shares for ranks that send and receive at these rates, in any one unit; 0 marks a rank that arrives late. Throws
/// std::invalid_argument for rates that are negative, not finite, or all 0.
[[nodiscard]] Shares shares_for(std::span<const double> rates);
/// Empty `shares` are equal shares. Throws std::invalid_argument unless there is one per rank and not all are 0.
[[nodiscard]] Program two_shot_all_reduce(std::uint32_t ranks, const Shares& shares);
/// all_reduce or reduce_scatter.
[[nodiscard]] Program pairwise(Collective collective, std::uint32_t ranks);

}  // namespace syntony
