// Maximum flow and minimum cut in integers, after Dinic (1970), for thousands of queries on one network.
//
// A phase labels every node with its distance to the sink over arcs that are not full (a search backwards from the sink
// that ends at the source), then sends flow along labels that decrease by one until no such path is left:
//
//     source 3 ──▶ 2 ──▶ 1 ──▶ 0 sink            current arc: within a phase, a node never looks again at an arc that
//             ╲──▶ 2 ──▶ 1 ──╱                   was full or led nowhere
//
// The flow persists: another source, another sink or a raised capacity continues from it. To query the flow from one
// source to each of many sinks, move the flow that has arrived at one sink on to the next (`augment(last, next)`): what
// the two have in common is not computed again.
//
// Nothing overflows: the sum of all capacities fits in an int64, and so does every sum of flows.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "solve/graph/adjacency.hpp"

namespace syntony {

/// A directed multigraph with capacities and a flow.
class FlowNetwork {
 public:
  using Amount = std::int64_t;
  static constexpr Amount kUnlimited = std::numeric_limits<Amount>::max();

  /// Arc i leads from tails[i] to heads[i]; the flow is zero. Throws std::invalid_argument for an arc that does not end
  /// at a node or has a negative capacity, std::overflow_error if the sum of the capacities exceeds an int64.
  FlowNetwork(std::uint32_t nodes, std::span<const std::int32_t> tails, std::span<const std::int32_t> heads,
              std::span<const Amount> capacities);

  [[nodiscard]] std::uint32_t nodes() const { return static_cast<std::uint32_t>(first_.size() - 1); }
  [[nodiscard]] std::size_t arcs() const { return at_.size(); }

  /// Sends as much more as fits from `source` to `sink`, at most `limit`, and returns the amount. Less than `limit`
  /// means that the flow is at its maximum. Throws std::invalid_argument for equal or unknown nodes or a negative
  /// limit.
  Amount augment(Node source, Node sink, Amount limit = kUnlimited);

  /// Changes the capacity of one arc; the flow stays. Throws std::invalid_argument if the flow would not fit.
  void set_capacity(std::size_t arc, Amount capacity);

  /// Resets the flow to zero.
  void reset();

  /// The flow through one arc. Throws std::invalid_argument if it does not exist.
  [[nodiscard]] Amount flow(std::size_t arc) const;

  /// The flow through each arc.
  [[nodiscard]] std::vector<Amount> flows() const;

  /// Nodes to which `source` can still send: after a maximum flow, the smallest source side of a minimum cut.
  [[nodiscard]] std::vector<bool> reachable_from(Node source) const;

  /// Nodes that can still send to `sink`: after a maximum flow, the smallest sink side of a minimum cut.
  [[nodiscard]] std::vector<bool> reaching(Node sink) const;

 private:
  void require_node(Node node) const;
  void require_arc(std::size_t arc) const;
  Amount checked_total(std::span<const Amount> capacities) const;
  bool label(Node source, Node sink);
  Amount blocking_flow(Node source, Node sink, Amount limit);

  // Arc i and its reverse have one position each: positions first_[u] .. first_[u + 1] lead away from node u.
  std::vector<std::uint32_t> first_;
  std::vector<Node> head_;
  std::vector<std::uint32_t> mate_;  ///< position of the reverse
  std::vector<Amount> residual_;     ///< what can still be sent; at a reverse position: what can be sent back
  std::vector<std::uint32_t> at_;    ///< arc -> position
  std::vector<Amount> capacity_;     ///< by arc
  Amount total_ = 0;                 ///< of all capacities

  // State of one phase; kept so that a phase allocates nothing.
  std::vector<std::uint32_t> label_, cursor_, path_;
  std::vector<Node> queue_;
};

}  // namespace syntony
