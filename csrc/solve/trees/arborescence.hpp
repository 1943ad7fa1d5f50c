// The cheapest tree from a root to every node of a directed graph, after Chu and Liu (1965) and Edmonds (1967).
//
// Every node takes its cheapest incoming arc. If these close a cycle, the cycle becomes a node of its own: entering it
// at a member costs the difference between that arc and the member's own.
//
//        r ─5─▶ a ─1─▶ b          a takes b's arc, b takes a's: a cycle {a, b}
//               ▲──1───┘          r's arc would enter it for 5 - 1; then a's own arc is dropped, b keeps its
//
// Implemented as in Tarjan (1977): walk backwards over cheapest arcs until the root is met, contracting cycles on the
// way; the arcs into a node wait in a leftist heap, whose members are made cheaper all at once. Contracted cycles form
// a forest over the nodes, which is expanded from the newest to the oldest. O(arcs log arcs).
//
// Costs are doubles. Integers are handled exactly as long as they stay below 2^53.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "solve/graph/adjacency.hpp"

namespace syntony {

class Arborescences {
 public:
  /// Arc i leads from tails[i] to heads[i]. Throws std::invalid_argument for an arc that does not end at a node.
  Arborescences(std::uint32_t nodes, std::span<const std::int32_t> tails, std::span<const std::int32_t> heads);

  /// For each node, the arc by which the cheapest tree enters it; kNone for the root. Valid until the next call. Throws
  /// std::invalid_argument if some node cannot be reached.
  std::span<const std::uint32_t> from(Node root, std::span<const double> costs);

  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

 private:
  /// An arc in a heap. `rebate` has yet to be subtracted from everything below.
  struct Waiting {
    double cost = 0, rebate = 0;
    std::uint32_t left = kNone, right = kNone, rank = 1;
  };

  std::uint32_t merged(std::uint32_t one, std::uint32_t other);
  void pass_on_rebate(std::uint32_t arc);
  /// The contracted node that the node is currently part of.
  Node whole_of(Node node);
  /// Takes the cheapest arc that enters the contracted node from outside.
  std::uint32_t take_cheapest(Node whole);
  /// Contracts the end of the walk, from `last` on, to one node.
  Node contract(std::vector<Node>& walk, Node last);

  std::uint32_t nodes_;
  std::vector<Node> tail_, head_;
  std::vector<Waiting> waiting_;             ///< by arc
  std::vector<std::uint32_t> heap_, enter_;  ///< by node or cycle: the top of its heap; the arc it is entered by
  std::vector<Node> cycle_, shortcut_;       ///< by node or cycle: the cycle it is a member of; a later one
  std::vector<std::uint8_t> state_;          ///< by node or cycle: where the walk stands
};

}  // namespace syntony
