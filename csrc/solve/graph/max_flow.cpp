#include "solve/graph/max_flow.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace syntony {
namespace {

constexpr std::uint32_t kUnlabelled = std::numeric_limits<std::uint32_t>::max();

}  // namespace

FlowNetwork::FlowNetwork(std::uint32_t nodes, std::span<const std::int32_t> tails, std::span<const std::int32_t> heads,
                         std::span<const Amount> capacities) {
  // Arcs and their reverses together, grouped by tail: arc i is i, its reverse i + arcs.
  std::vector<std::int32_t> from(tails.begin(), tails.end()), to(heads.begin(), heads.end());
  from.insert(from.end(), heads.begin(), heads.end());
  to.insert(to.end(), tails.begin(), tails.end());
  if (tails.size() != heads.size() || from.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw std::invalid_argument(std::to_string(tails.size()) + " tails and " + std::to_string(heads.size()) + " heads");
  }
  Adjacency grouped = group_by_tail(nodes, from, to);
  first_ = std::move(grouped.first);
  std::vector<std::uint32_t> position(from.size());
  head_.resize(from.size());
  for (std::uint32_t place = 0; place < from.size(); ++place) {
    position[grouped.arc[place]] = place;
    head_[place] = static_cast<Node>(to[grouped.arc[place]]);
  }
  mate_.resize(from.size());
  for (std::size_t arc = 0; arc < tails.size(); ++arc) {
    mate_[position[arc]] = position[arc + tails.size()];
    mate_[position[arc + tails.size()]] = position[arc];
  }
  position.resize(tails.size());
  at_ = std::move(position);
  total_ = checked_total(capacities);
  capacity_.assign(capacities.begin(), capacities.end());
  residual_.resize(from.size());
  label_.resize(nodes);
  queue_.reserve(nodes);
  reset();
}

void FlowNetwork::require_node(Node node) const {
  if (node >= nodes()) {
    throw std::invalid_argument("node " + std::to_string(node) + " does not exist; there are " +
                                std::to_string(nodes()));
  }
}

void FlowNetwork::require_arc(std::size_t arc) const {
  if (arc >= arcs()) {
    throw std::invalid_argument("arc " + std::to_string(arc) + " does not exist; there are " + std::to_string(arcs()));
  }
}

FlowNetwork::Amount FlowNetwork::checked_total(std::span<const Amount> capacities) const {
  if (capacities.size() != arcs()) {
    throw std::invalid_argument(std::to_string(capacities.size()) + " capacities for " + std::to_string(arcs()) +
                                " arcs");
  }
  Amount total = 0;
  for (std::size_t arc = 0; arc < capacities.size(); ++arc) {
    if (capacities[arc] < 0) {
      throw std::invalid_argument("arc " + std::to_string(arc) + " has capacity " + std::to_string(capacities[arc]) +
                                  "; it must not be negative");
    }
    if (capacities[arc] > kUnlimited - total) {
      throw std::overflow_error("the capacities of the arcs together exceed 2^63 - 1");
    }
    total += capacities[arc];
  }
  return total;
}

void FlowNetwork::set_capacity(std::size_t arc, Amount capacity) {
  const Amount carried = flow(arc);
  if (capacity < carried) {
    throw std::invalid_argument("arc " + std::to_string(arc) + " carries " + std::to_string(carried) +
                                "; its capacity cannot become " + std::to_string(capacity));
  }
  const Amount others = total_ - capacity_[arc];
  if (capacity > kUnlimited - others) throw std::overflow_error("the capacities of the arcs together exceed 2^63 - 1");
  total_ = others + capacity;
  capacity_[arc] = capacity;
  residual_[at_[arc]] = capacity - carried;
}

void FlowNetwork::reset() {
  for (std::size_t arc = 0; arc < arcs(); ++arc) {
    residual_[at_[arc]] = capacity_[arc];
    residual_[mate_[at_[arc]]] = 0;
  }
}

FlowNetwork::Amount FlowNetwork::flow(std::size_t arc) const {
  require_arc(arc);
  return residual_[mate_[at_[arc]]];
}

std::vector<FlowNetwork::Amount> FlowNetwork::flows() const {
  std::vector<Amount> flows(arcs());
  for (std::size_t arc = 0; arc < arcs(); ++arc) flows[arc] = flow(arc);
  return flows;
}

FlowNetwork::Amount FlowNetwork::augment(Node source, Node sink, Amount limit) {
  require_node(source);
  require_node(sink);
  if (source == sink) throw std::invalid_argument("source and sink are both node " + std::to_string(sink));
  if (limit < 0) throw std::invalid_argument("the limit is " + std::to_string(limit) + "; it must not be negative");
  Amount sent = 0;
  while (sent < limit && label(source, sink)) sent += blocking_flow(source, sink, limit - sent);
  return sent;
}

/// Labels nodes with their distance to the sink, out to the source; false if the source cannot reach it.
bool FlowNetwork::label(Node source, Node sink) {
  std::ranges::fill(label_, kUnlabelled);
  queue_.assign(1, sink);
  label_[sink] = 0;
  for (std::size_t next = 0; next < queue_.size(); ++next) {
    const Node node = queue_[next];
    for (std::uint32_t place = first_[node]; place < first_[node + 1]; ++place) {
      const Node before = head_[place];
      if (label_[before] != kUnlabelled || residual_[mate_[place]] == 0) continue;
      label_[before] = label_[node] + 1;
      if (before == source) return true;
      queue_.push_back(before);
    }
  }
  return false;
}

/// Sends flow along decreasing labels, depth first, until no such path is left or `limit` is reached.
FlowNetwork::Amount FlowNetwork::blocking_flow(Node source, Node sink, Amount limit) {
  cursor_.assign(first_.begin(), first_.end() - 1);
  path_.clear();
  Amount sent = 0;
  Node node = source;
  while (true) {
    if (node == sink) {
      Amount amount = limit - sent;
      for (const std::uint32_t place : path_) amount = std::min(amount, residual_[place]);
      std::size_t keep = path_.size();
      for (std::size_t hop = path_.size(); hop-- > 0;) {
        residual_[path_[hop]] -= amount;
        residual_[mate_[path_[hop]]] += amount;
        if (residual_[path_[hop]] == 0) keep = hop;
      }
      sent += amount;
      if (sent == limit) return sent;
      node = head_[mate_[path_[keep]]];
      path_.resize(keep);
      continue;
    }
    std::uint32_t& cursor = cursor_[node];
    while (cursor < first_[node + 1] && (residual_[cursor] == 0 || label_[head_[cursor]] + 1 != label_[node])) ++cursor;
    if (cursor < first_[node + 1]) {
      path_.push_back(cursor);
      node = head_[cursor];
    } else {
      if (path_.empty()) return sent;
      node = head_[mate_[path_.back()]];
      path_.pop_back();
      ++cursor_[node];
    }
  }
}

std::vector<bool> FlowNetwork::reachable_from(Node source) const {
  require_node(source);
  std::vector<bool> reached(nodes(), false);
  std::vector<Node> frontier{source};
  reached[source] = true;
  while (!frontier.empty()) {
    const Node node = frontier.back();
    frontier.pop_back();
    for (std::uint32_t place = first_[node]; place < first_[node + 1]; ++place) {
      if (residual_[place] == 0 || reached[head_[place]]) continue;
      reached[head_[place]] = true;
      frontier.push_back(head_[place]);
    }
  }
  return reached;
}

std::vector<bool> FlowNetwork::reaching(Node sink) const {
  require_node(sink);
  std::vector<bool> reached(nodes(), false);
  std::vector<Node> frontier{sink};
  reached[sink] = true;
  while (!frontier.empty()) {
    const Node node = frontier.back();
    frontier.pop_back();
    for (std::uint32_t place = first_[node]; place < first_[node + 1]; ++place) {
      if (residual_[mate_[place]] == 0 || reached[head_[place]]) continue;
      reached[head_[place]] = true;
      frontier.push_back(head_[place]);
    }
  }
  return reached;
}

}  // namespace syntony
