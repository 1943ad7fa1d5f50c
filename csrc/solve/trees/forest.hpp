// Packs spanning trees: from every root as many as asked for, all of them together within the capacities of the links.
//
// Edmonds (1973): trees that reach all receivers, K_r from root r, fit exactly if every set of nodes that misses some
// receiver lets through at least as many trees as start in it. ForestColl (Zhao et al., NSDI'26) makes collectives of
// that: all_gather at the exact optimum of any network is such a forest. Two steps, each keeping the condition true:
//
//   1. Relays go (switches, NICs: they forward, they receive nothing). What a relay takes in at one link and sends out
//      at another becomes a link of its own, with a route through the relay (edge splitting: Bang-Jensen, Frank and
//      Jackson, 1995):
//                                                         ┌─────────▶ b
//            a ──▶ relay ──▶ b        becomes          a ─┤                     capacity of a's link shared out
//                        ╲──▶ c                           └─────────▶ c
//
//      An even split is tried first: trees over it are shallow. Where it breaks the condition, pairs of links are
//      split one after another, each by the most that keeps it.
//   2. Trees grow link by link, nearest to the root first. A link is taken for as many of the trees that want it as
//      leaves room for all trees still to come; the others go on apart (Tarjan 1974; Schrijver 2003, section 53.8).
//
// Both ask for minimum cuts and nothing else, in whole numbers. Before that, luck is tried: all relays split evenly,
// all trees grown a level at a time, nobody looking ahead. What comes of it fits by construction, and its trees are as
// shallow as can be; on the networks that people build it mostly comes off.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

/// Trees as columns. Tree t stands for `multiplicity[t]` equal ones from `root[t]`; its edges are offset[t] ..
/// offset[t + 1]: from tail to head, both receivers, over links route_link[route_offset[r] .. route_offset[r + 1]] for
/// r = route. An edge's tail has been reached by an edge before it.
struct Forest {
  std::vector<std::uint32_t> root;
  std::vector<std::int64_t> multiplicity;
  std::vector<std::int64_t> offset{0};
  std::vector<std::uint32_t> tail, head, route;
  std::vector<std::int64_t> route_offset{0};
  std::vector<std::uint32_t> route_link;
};

/// How far from its root each edge begins: of trees of `edges` edges each, one behind the other, over that many
/// receivers and one more. Throws std::invalid_argument for an edge that ends at no receiver.
[[nodiscard]] std::vector<std::int32_t> edge_depths(std::size_t edges, std::span<const std::int64_t> tails,
                                                    std::span<const std::int64_t> heads);

/// A network whose nodes 0 .. trees.size() - 1 are receivers and the rest relays. `trees[r]` says how many start at r.
struct ForestRequest {
  std::uint32_t nodes = 0;
  std::span<const std::int32_t> tails, heads;  ///< of each link
  std::span<const std::int64_t> capacities;    ///< trees that each link can carry
  std::span<const std::int64_t> trees;
};

/// Throws std::invalid_argument where a relay takes in more or less than it sends out (splitting needs balance), or
/// where the trees do not fit.
[[nodiscard]] Forest pack_forest(const ForestRequest& request);

}  // namespace syntony
