// Spanning trees that negotiate for links: nearly as fast as any, and shallow.
//
//       cost of a hop   =   how full its links are, steeply rising   +   patience * when it arrives
//
//       root ──▶ a ──▶ c          c hangs on a, though b is reached as early: the link b ─▶ c is full.
//        ╲──▶ b                   With more patience it would hang on the root's neighbour farther off.
//
// A tree grows by the cheapest hop that leads out of it, where a hop's cost includes that of continuing from its end: a
// rank with full wires is a good leaf and a bad parent. If latency costs nothing, that is a minimum spanning tree
// (Prim); if it costs much, a shortest-path tree (Dijkstra); in between it is nearly both (Alpert et al.,
// "Prim-Dijkstra tradeoffs", IEEE TCAD 14(7), 1995). All trees are grown, then each is removed and grown again among
// the others, round after round, while full links become more expensive (PathFinder: McMurchie and Ebeling, FPGA'95).
// The result is the round in which the busiest link and the deepest trees together take least. There is no guarantee;
// it takes milliseconds, and any number of trees, of equal weight or not, share the links.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

/// Trees over receivers 0 .. receivers - 1, each edge one of the hops. Hop h leads from src[h] to dst[h] over
/// link[offset[h]] .. link[offset[h + 1] - 1]. Tree t carries weight[t]; a tree with `backwards` set sums: its hops
/// lead to the root.
struct NegotiationRequest {
  std::uint32_t receivers = 0;
  std::span<const std::int32_t> src, dst;
  std::span<const double> delay;  ///< seconds from a hop's start to its arrival
  std::span<const std::int64_t> offset;
  std::span<const std::int32_t> link;
  std::span<const double> seconds;  ///< how long weight 1 keeps each link busy
  std::span<const std::int64_t> root;
  std::span<const double> weight;
  std::span<const std::uint8_t> backwards;
  double time = 0;      ///< no link should be busy for longer
  double patience = 0;  ///< the cost of the mean delay; a full link costs 1
  std::uint32_t rounds = 0;
};

/// Hops of tree t are hop[t * (receivers - 1)] and the following, ordered so that each starts where the tree has been
/// before. `busy`: seconds of the busiest link; `depth`: of the latest arrivals, those of sums and of copies added.
struct NegotiatedTrees {
  std::vector<std::int32_t> hop;
  double busy = 0, depth = 0;
};

/// Throws std::invalid_argument for inconsistent columns, or if a receiver cannot be reached.
[[nodiscard]] NegotiatedTrees negotiated_trees(const NegotiationRequest& request);

}  // namespace syntony
