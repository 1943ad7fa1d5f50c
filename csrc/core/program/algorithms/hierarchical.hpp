// The hierarchy: ranks are grouped in boxes, and the wires between boxes are the bottleneck.
//
//      box 0            box 1            box 2         Any sizes, uneven ones too. A rank's *counterpart* in another
//     [0]-[1]  ~~~~~   [4]-[5]  ~~~~~   [8]-[9]        box is the rank with its place there, counted round and round
//      | X |            | X |            | X           (place i, modulo the size of that box).
//     [2]-[3]          [6]-[7]          [10]
//
// all_reduce: place j of every box owns part j of the data. Each box sums part j directly at its owner (one rounding);
// the owners of part j run a ring over the boxes; each owner sends the sum to its box. So a box's uplink carries as
// much as if the box were one rank, spread over all of its ranks. The other collectives move over trees and routes of
// depth two: all_gather floods a block to its counterparts, which flood their boxes; reduce_scatter is the reverse;
// all_to_all goes first to one's counterpart in the destination's box, so that all for a box leaves at once, then to
// the destination; rooted collectives go through one leader per box.
#pragma once

#include <cstdint>
#include <vector>

#include "core/program/program.hpp"

namespace syntony {

using Boxes = std::vector<std::vector<std::uint32_t>>;  // the ranks of each box

/// A split into about sqrt(ranks) boxes of nearly equal size, for ranks on a single host: 7 -> {0..3}, {4..6}.
[[nodiscard]] Boxes boxes_for(std::uint32_t ranks);

/// Throws std::invalid_argument unless every rank is in exactly one box and no box is empty.
[[nodiscard]] Program hierarchical(Collective collective, std::uint32_t ranks, std::uint32_t root, const Boxes& boxes);
/// all_reduce. Throws like `hierarchical`.
[[nodiscard]] Program two_level(std::uint32_t ranks, const Boxes& boxes);

}  // namespace syntony
