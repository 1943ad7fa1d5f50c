// The double binary tree (Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and
// scan", 2009; made popular by NCCL).
//
// In a binary tree half of the ranks are leaves, which never send down, so half of the bandwidth is idle. So take two
// trees, each carrying half of the data, such that no rank is an inner node in both. The first is the in-order tree:
//
//      position   1   2   3   4   5   6   7   8   9  10         a position's lowest set bit is its height;
//                             .------ 8 ------.                 odd positions are leaves, even ones inner nodes;
//                     .------ 4 ------.       |                 the parent of p with lowest bit b is
//                     2               6      10                 (p ^ b) | 2b, or p ^ b where that lies beyond n
//                   /   \           /   \    /
//                  1     3         5     7  9
//
//      tree 0:  rank r stands at position r + 1:                           inner ranks are odd
//      tree 1:  n even: mirrored, rank r at position n - r:                inner ranks are even
//               n odd:  shifted,  rank r at position r (rank 0 at n, leaf): inner ranks are even and not 0
//
// The depth is floor(log2 n) edges. all_reduce sums half of the data up each tree and floods it down again: 2 log n
// hops, and each rank sends about as much as in the ring. For broadcast, reduce, gather and scatter both trees span the
// other n - 1 ranks and the root is above both; all_gather floods half of each block over each tree from its owner,
// reduce_scatter is the reverse, all_to_all takes the shorter of the two paths.
#pragma once

#include <array>
#include <cstdint>

#include "core/program/moves/tree.hpp"
#include "core/program/program.hpp"

namespace syntony {

[[nodiscard]] std::array<Tree, 2> double_binary_tree(std::uint32_t ranks);

[[nodiscard]] Program dbt(Collective collective, std::uint32_t ranks, std::uint32_t root);

}  // namespace syntony
