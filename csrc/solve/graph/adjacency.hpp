// The arcs of a directed multigraph, grouped by the node they leave: the structure that every search traverses.
//
//      arc     0      1      2              first      0    2    3   3
//              a->b   b->c   a->c           position   0    1    2
//                                           arc        0    2    1      (a: 0 and 2, b: 1, c: none)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace syntony {

using Node = std::uint32_t;

/// The positions of u's arcs are `first[u] .. first[u + 1]`; `arc[position]` is the arc there.
struct Adjacency {
  std::vector<std::uint32_t> first;
  std::vector<std::uint32_t> arc;
};

/// Groups arcs by `tails`, keeping their order. Throws std::invalid_argument naming an arc that does not end at a node.
inline Adjacency group_by_tail(std::uint32_t nodes, std::span<const std::int32_t> tails,
                               std::span<const std::int32_t> heads) {
  if (tails.size() != heads.size()) {
    throw std::invalid_argument(std::to_string(tails.size()) + " tails, but " + std::to_string(heads.size()) +
                                " heads");
  }
  Adjacency grouped{.first = std::vector<std::uint32_t>(nodes + 1, 0), .arc = std::vector<std::uint32_t>(tails.size())};
  for (std::size_t arc = 0; arc < tails.size(); ++arc) {
    for (const std::int32_t end : {tails[arc], heads[arc]}) {
      if (end < 0 || static_cast<std::uint32_t>(end) >= nodes) {
        throw std::invalid_argument("arc " + std::to_string(arc) + " ends at node " + std::to_string(end) +
                                    "; nodes are 0.." + std::to_string(static_cast<std::int64_t>(nodes) - 1));
      }
    }
    ++grouped.first[static_cast<std::size_t>(tails[arc]) + 1];
  }
  for (std::uint32_t node = 0; node < nodes; ++node) grouped.first[node + 1] += grouped.first[node];
  std::vector<std::uint32_t> next(grouped.first.begin(), grouped.first.end() - 1);
  for (std::uint32_t arc = 0; arc < tails.size(); ++arc) {
    grouped.arc[next[static_cast<std::size_t>(tails[arc])]++] = arc;
  }
  return grouped;
}

}  // namespace syntony
