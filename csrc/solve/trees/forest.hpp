// Packs spanning trees: from every root the requested number, all together within the capacities of the links.
//
// Edmonds (1973): trees that reach all receivers, K_r from root r, fit exactly if every set of nodes that misses some
// receiver has an outgoing capacity of at least the number of trees that start in it. ForestColl (Zhao et al., NSDI'26)
// derives collectives from this: all_gather at the exact optimum of any network is such a forest. Two steps, each
// preserving the condition:
//
//  1. Relays are removed (switches, NICs: they forward and receive nothing). What a relay takes in at one link and
//     sends out at another becomes a link of its own, with a route through the relay (edge splitting: Bang-Jensen,
//     Frank and Jackson, 1995):
//                                                        ┌─────────▶ b
//           a ──▶ relay ──▶ b        becomes          a ─┤                     capacity of a's link shared out
//                       ╲──▶ c                           └─────────▶ c
//
//     An even split is tried first, because trees over it are shallow. If it breaks the condition, pairs of links are
//     split one after another, each by the largest amount that preserves it.
//  2. Trees grow link by link, nearest to the root first. A link is taken for as many of the trees that want it as
//     leaves room for all trees still to come; the others continue separately (Tarjan 1974; Schrijver 2003, section
//     53.8).
//
// Both steps use only minimum cuts, in integers. Before that, a heuristic is tried: all relays are split evenly and all
// trees grown level by level, without looking ahead. Its result fits by construction and its trees are as shallow as
// possible; on real networks it mostly succeeds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

/// Trees as columns. Tree t stands for `multiplicity[t]` equal trees from `root[t]`; its edges are offset[t] ..
/// offset[t + 1]: from tail to head, both receivers, over links route_link[route_offset[r] .. route_offset[r + 1]] for
/// r = route. The tail of an edge has been reached by an earlier edge.
struct Forest {
  std::vector<std::uint32_t> root;
  std::vector<std::int64_t> multiplicity;
  std::vector<std::int64_t> offset{0};
  std::vector<std::uint32_t> tail, head, route;
  std::vector<std::int64_t> route_offset{0};
  std::vector<std::uint32_t> route_link;
};

/// The distance of each edge's start from its root, for trees of `edges` edges each, one after another, over that many
/// receivers plus one. Throws std::invalid_argument for an edge that does not end at a receiver.
[[nodiscard]] std::vector<std::int32_t> edge_depths(std::size_t edges, std::span<const std::int64_t> tails,
                                                    std::span<const std::int64_t> heads);

/// A network whose nodes 0 .. trees.size() - 1 are receivers and the rest relays. `trees[r]` trees start at r.
struct ForestRequest {
  std::uint32_t nodes = 0;
  std::span<const std::int32_t> tails, heads;  ///< of each link
  std::span<const std::int64_t> capacities;    ///< trees that each link can carry
  std::span<const std::int64_t> trees;
};

/// Throws std::invalid_argument if a relay takes in more or less than it sends out (splitting needs balance), or if the
/// trees do not fit.
[[nodiscard]] Forest pack_forest(const ForestRequest& request);

}  // namespace syntony
