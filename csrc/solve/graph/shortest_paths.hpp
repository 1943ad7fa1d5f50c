// Distances in a directed graph whose arcs have lengths, after Dijkstra (1959).
//
// Networks have few kinds of wires, so few distances occur, and many nodes share each: the queue holds one bucket per
// distance, and thousands of nodes cost a handful of tree operations. Zero lengths are allowed (switches take no step).
//
// Lengths are doubles. Integers are exact as long as every distance stays below 2^53.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "solve/graph/adjacency.hpp"

namespace syntony {

/// A graph that computes distances from one node to all others.
class ShortestPaths {
 public:
  static constexpr double kUnreachable = std::numeric_limits<double>::infinity();

  /// Arc i leads from tails[i] to heads[i]. Throws std::invalid_argument for an arc that does not end at a node or
  /// whose length is negative or not a number.
  ShortestPaths(std::uint32_t nodes, std::span<const std::int32_t> tails, std::span<const std::int32_t> heads,
                std::span<const double> lengths);

  [[nodiscard]] std::uint32_t nodes() const { return static_cast<std::uint32_t>(first_.size() - 1); }

  /// For each node, the length of a shortest path from `source`; kUnreachable if there is none. Valid until the next
  /// call.
  std::span<const double> from(Node source);

 private:
  std::vector<std::uint32_t> first_;
  std::vector<Node> head_;
  std::vector<double> length_;

  std::vector<double> distance_;
  std::map<double, std::vector<Node>> buckets_;
};

}  // namespace syntony
