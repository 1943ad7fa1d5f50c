#include "solve/trees/fractional_packing.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <queue>
#include <stdexcept>
#include <utility>

namespace syntony {
namespace {

constexpr double kFar = std::numeric_limits<double>::infinity();

}  // namespace

FractionalPacking::FractionalPacking(const PackingRequest& request)
    : nodes_(request.nodes),
      receivers_(static_cast<std::uint32_t>(request.owed.size())),
      tail_(request.tails.begin(), request.tails.end()),
      head_(request.heads.begin(), request.heads.end()),
      capacity_(request.capacities.begin(), request.capacities.end()),
      owed_(request.owed.begin(), request.owed.end()),
      leaving_(group_by_tail(request.nodes, request.tails, request.heads)),
      load_(capacity_.size()),
      length_(capacity_.size()),
      mean_lengths_(capacity_.size()),
      trees_(0, {}, {}) {
  if (receivers_ > nodes_ || capacity_.size() != tail_.size() ||
      !std::ranges::all_of(capacity_, [](double capacity) { return capacity > 0; })) {
    throw std::invalid_argument("a packing needs receivers among the nodes, and a positive capacity per link");
  }
  find_wires();
}

void FractionalPacking::find_wires() {
  relayed_place_.assign(receivers_, kRelayed);
  for (std::uint32_t link = 0; link < tail_.size(); ++link) {
    const Node tail = tail_[link];
    if (tail >= receivers_) continue;
    if (head_[link] < receivers_) {
      wires_.push_back({tail, head_[link], link});
    } else if (relayed_place_[tail] == kRelayed) {
      relayed_place_[tail] = static_cast<std::uint32_t>(relayed_.size());
      relayed_.push_back(tail);
    }
  }
  distance_.assign(relayed_.size(), std::vector<double>(nodes_));
  last_.assign(relayed_.size(), std::vector<std::uint32_t>(nodes_));
  std::ranges::fill(length_, 1.0);
  for (const Node tail : relayed_) {
    price_paths(tail);
    for (Node head = 0; head < receivers_; ++head) {
      if (head != tail && distance_[relayed_place_[tail]][head] < kFar) wires_.push_back({tail, head, kRelayed});
    }
  }
  cost_.resize(wires_.size());
  std::vector<std::int32_t> tails, heads;
  for (const Wire& wire : wires_) {
    tails.push_back(static_cast<std::int32_t>(wire.tail));
    heads.push_back(static_cast<std::int32_t>(wire.head));
  }
  trees_ = Arborescences(receivers_, tails, heads);
}

void FractionalPacking::price_paths(Node receiver) {
  std::vector<double>& distance = distance_[relayed_place_[receiver]];
  std::vector<std::uint32_t>& last = last_[relayed_place_[receiver]];
  std::ranges::fill(distance, kFar);
  using Item = std::pair<double, Node>;
  std::priority_queue<Item, std::vector<Item>, std::greater<>> queue;
  queue.emplace(0.0, receiver);
  while (!queue.empty()) {
    const auto [here, node] = queue.top();
    queue.pop();
    if (node != receiver && here > distance[node]) continue;
    for (std::uint32_t place = leaving_.first[node]; place < leaving_.first[node + 1]; ++place) {
      const std::uint32_t link = leaving_.arc[place];
      const Node head = head_[link];
      if (head == receiver || (node == receiver && head < receivers_)) continue;  // direct links are their own wires
      const double through = here + length_[link];
      if (!(through < distance[head])) continue;
      distance[head] = through;
      last[head] = link;
      if (head >= receivers_) queue.emplace(through, head);
    }
  }
}

void FractionalPacking::price() {
  for (const Node receiver : relayed_) price_paths(receiver);
  for (std::size_t number = 0; number < wires_.size(); ++number) {
    const Wire& wire = wires_[number];
    cost_[number] = wire.link == kRelayed ? distance_[relayed_place_[wire.tail]][wire.head] : length_[wire.link];
  }
}

void FractionalPacking::set_lengths() {
  double top = 0;
  for (std::size_t link = 0; link < load_.size(); ++link) top = std::max(top, load_[link] / capacity_[link]);
  for (std::size_t link = 0; link < load_.size(); ++link) {
    length_[link] = std::exp(rate_ * (load_[link] / capacity_[link] - top)) / capacity_[link];
  }
}

std::uint32_t FractionalPacking::route_of(const Wire& wire) {
  std::vector<std::uint32_t> route;
  if (wire.link != kRelayed) {
    route.push_back(wire.link);
  } else {
    const std::vector<std::uint32_t>& last = last_[relayed_place_[wire.tail]];
    for (Node node = wire.head; node != wire.tail; node = tail_[last[node]]) route.push_back(last[node]);
    std::ranges::reverse(route);
  }
  const auto [place, is_new] = route_number_.try_emplace(route, static_cast<std::uint32_t>(routes_.size()));
  if (is_new) routes_.push_back(std::move(route));
  return place->second;
}

std::vector<std::uint32_t> FractionalPacking::cheapest_tree(Node root) {
  const std::span<const std::uint32_t> enter = trees_.from(root, cost_);
  std::vector<std::uint32_t> key{root};
  for (Node head = 0; head < receivers_; ++head) {
    if (head != root) key.push_back(route_of(wires_[enter[head]]));
  }
  return key;
}

void FractionalPacking::turn(Node root) {
  std::vector<double> uses(load_.size());
  double left = owed_[root];
  while (left > 1e-9 * owed_[root]) {
    set_lengths();
    price();
    std::vector<std::uint32_t> key = cheapest_tree(root);
    std::ranges::fill(uses, 0.0);
    for (std::size_t place = 1; place < key.size(); ++place) {
      for (const std::uint32_t link : routes_[key[place]]) uses[link] += 1;
    }
    double amount = left;
    for (std::size_t link = 0; link < uses.size(); ++link) {
      if (uses[link] > 0) amount = std::min(amount, capacity_[link] / uses[link]);
    }
    for (std::size_t link = 0; link < uses.size(); ++link) load_[link] += amount * uses[link];
    keep(std::move(key), amount);
    left -= amount;
  }
}

void FractionalPacking::keep(std::vector<std::uint32_t> key, double weight) {
  const auto [place, is_new] = tree_number_.try_emplace(std::move(key), static_cast<std::uint32_t>(kept_.size()));
  if (is_new) {
    kept_.push_back(&place->first);
    weights_.push_back(0);
  }
  weights_[place->second] += weight;
}

bool FractionalPacking::run(std::uint64_t phases, double seconds, std::uint64_t most_trees) {
  const auto start = std::chrono::steady_clock::now();
  const auto over = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds;
  };
  for (std::uint64_t phase = 0; phase < phases; ++phase) {
    // A phase is finished once started, so that every root gets its share.
    if (phases_ > 0 && (over() || kept_.size() >= most_trees)) return false;
    rate_ = std::min(1.0, std::sqrt(std::log(static_cast<double>(capacity_.size()) + 1) / (phases_ + 1)));
    for (Node root = 0; root < receivers_; ++root) {
      if (owed_[root] > 0) turn(root);
    }
    phases_ += 1;
    set_lengths();
    double worth = 0;
    for (std::size_t link = 0; link < length_.size(); ++link) worth += length_[link] * capacity_[link];
    for (std::size_t link = 0; link < length_.size(); ++link) mean_lengths_[link] += length_[link] / worth;
  }
  return true;
}

double FractionalPacking::cheapest(std::span<const double> lengths) {
  if (lengths.size() != length_.size()) throw std::invalid_argument("a packing needs a length per link");
  length_.assign(lengths.begin(), lengths.end());
  price();
  double total = 0;
  for (Node root = 0; root < receivers_; ++root) {
    if (!(owed_[root] > 0)) continue;
    std::vector<std::uint32_t> key = cheapest_tree(root);
    double tree = 0;
    for (std::size_t place = 1; place < key.size(); ++place) {
      for (const std::uint32_t link : routes_[key[place]]) tree += length_[link];
    }
    keep(std::move(key), 0);
    total += owed_[root] * tree;
  }
  return total;
}

Forest FractionalPacking::forest() const {
  Forest forest;
  std::vector<std::vector<Node>> children(receivers_);
  for (const std::vector<std::uint32_t>* key : kept_) {
    const Node root = key->front();
    std::vector<std::uint32_t> into(receivers_);
    for (std::vector<Node>& nodes : children) nodes.clear();
    for (std::size_t place = 1; place < key->size(); ++place) {
      const std::vector<std::uint32_t>& route = routes_[(*key)[place]];
      const Node head = head_[route.back()];
      into[head] = (*key)[place];
      children[tail_[route.front()]].push_back(head);
    }
    forest.root.push_back(root);
    forest.multiplicity.push_back(1);
    std::vector<Node> reached{root};
    for (std::size_t next = 0; next < reached.size(); ++next) {
      for (const Node head : children[reached[next]]) {
        forest.tail.push_back(reached[next]);
        forest.head.push_back(head);
        forest.route.push_back(into[head]);
        reached.push_back(head);
      }
    }
    forest.offset.push_back(static_cast<std::int64_t>(forest.tail.size()));
  }
  for (const std::vector<std::uint32_t>& route : routes_) {
    forest.route_link.insert(forest.route_link.end(), route.begin(), route.end());
    forest.route_offset.push_back(static_cast<std::int64_t>(forest.route_link.size()));
  }
  return forest;
}

}  // namespace syntony
