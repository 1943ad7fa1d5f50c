// Spanning trees that negotiate for links: nearly as fast as any, and shallow.
//
//        cost of a hop   =   how full its links are, steeply rising   +   patience * when it arrives
//
//        root ──▶ a ──▶ c          c hangs on a, though b is reached as soon: the link b ─▶ c is full.
//         ╲──▶ b                   With more patience it would hang on the root's neighbour farther off.
//
// A tree grows by the cheapest hop that leads out of it, where a hop also costs what it costs to go on from its end: a
// rank whose wires are full makes a good leaf, and a bad parent. With no patience for latency that is a tree of nearest
// neighbours (Prim), with much of it one of shortest paths (Dijkstra); in between it is both nearly (Alpert et al.,
// "Prim-Dijkstra tradeoffs", IEEE TCAD 14(7), 1995). All trees are grown, then each is taken out and grown again among
// the others, round after round, while full links become dearer (PathFinder: McMurchie and Ebeling, FPGA'95). Of all
// rounds the one is kept whose busiest link and deepest trees take least together. Nothing is proven; it takes
// milliseconds, and as many trees as are asked for, of equal weight or not, share the links.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

/// Trees over receivers 0 .. receivers - 1, each edge one of the hops. Hop h leads from src[h] to dst[h] over
/// link[offset[h]] .. link[offset[h + 1] - 1]. Tree t carries weight[t]; one that goes `backwards` sums: its hops lead
/// to the root.
struct NegotiationRequest {
  std::uint32_t receivers = 0;
  std::span<const std::int32_t> src, dst;
  std::span<const double> delay;  ///< seconds from a hop's begin to its arrival
  std::span<const std::int64_t> offset;
  std::span<const std::int32_t> link;
  std::span<const double> seconds;  ///< for which weight 1 keeps each link busy
  std::span<const std::int64_t> root;
  std::span<const double> weight;
  std::span<const std::uint8_t> backwards;
  double time = 0;      ///< no link should be busy for longer
  double patience = 0;  ///< what the mean delay costs; a link that is full costs 1
  std::uint32_t rounds = 0;
};

/// Hops of tree t are hop[t * (receivers - 1)] and the following, in an order in which each begins where the tree has
/// been before. `busy`: seconds of the busiest link; `depth`: of the farthest arrivals, of sums and of copies in sum.
struct NegotiatedTrees {
  std::vector<std::int32_t> hop;
  double busy = 0, depth = 0;
};

/// Throws std::invalid_argument for columns that do not fit together, and where a receiver cannot be reached.
[[nodiscard]] NegotiatedTrees negotiated_trees(const NegotiationRequest& request);

}  // namespace syntony
