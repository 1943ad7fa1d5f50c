#include "solve/trees/forest.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "solve/graph/max_flow.hpp"
#include "solve/trees/relay_removal.hpp"

namespace syntony {
namespace {

using Amount = std::int64_t;
using Number = std::uint32_t;

/// A group of equal trees that are still growing.
struct Sapling {
  Number root = 0;
  Amount multiplicity = 0;
  std::vector<Number> links;     ///< in the order in which they were taken
  std::vector<Number> reached;   ///< in order, the root first
  std::vector<bool> is_reached;  ///< by receiver
  std::vector<bool> refused;     ///< by link: it has no room for this tree, and never will
};

/// What both growth methods share: the links with their remaining room.
class Grove {
 public:
  Grove(const std::vector<DirectLink>& links, std::span<const Amount> trees)
      : links_(links), receivers_(static_cast<Number>(trees.size())), leaving_(trees.size()) {
    for (Number link = 0; link < links.size(); ++link) {
      leaving_[links[link].tail].push_back(link);
      room_.push_back(links[link].capacity);
    }
  }

 protected:
  [[nodiscard]] Sapling planted(Number root, Amount multiplicity) const {
    Sapling sapling{root, multiplicity, {}, {root}, std::vector<bool>(receivers_), {}};
    sapling.is_reached[root] = true;
    return sapling;
  }

  [[nodiscard]] bool grown(const Sapling& sapling) const { return sapling.reached.size() == receivers_; }

  /// Takes the link for `room` of the sapling's trees. Returns the other trees, if any.
  std::optional<Sapling> take(Sapling& sapling, Number link, Amount room) {
    std::optional<Sapling> rest;
    if (room < sapling.multiplicity) {
      rest = sapling;
      rest->multiplicity -= room;
      sapling.multiplicity = room;
    }
    room_[link] -= room;
    sapling.links.push_back(link);
    sapling.reached.push_back(links_[link].head);
    sapling.is_reached[links_[link].head] = true;
    return rest;
  }

  const std::vector<DirectLink>& links_;
  Number receivers_;
  std::vector<std::vector<Number>> leaving_;
  std::vector<Amount> room_;
};

/// Grows all trees together, level by level, emptiest link first. Does not look ahead, so it may get stuck.
class LevelGrowth : Grove {
 public:
  LevelGrowth(const std::vector<DirectLink>& links, std::span<const Amount> trees) : Grove(links, trees) {
    for (Number root = 0; root < receivers_; ++root) {
      if (trees[root] > 0) saplings_.push_back({planted(root, trees[root]), 0, 1});
    }
    best_.assign(receivers_, kNone);
  }

  std::optional<std::vector<Sapling>> run() {
    bool all_grown = false;
    while (!all_grown) {
      all_grown = true;
      for (std::size_t number = 0; number < saplings_.size(); ++number) {
        if (grown(saplings_[number].sapling)) continue;
        if (!grow_level(number)) return std::nullopt;
        all_grown &= grown(saplings_[number].sapling);
      }
    }
    std::vector<Sapling> trees;
    for (Levelled& levelled : saplings_) trees.push_back(std::move(levelled.sapling));
    return trees;
  }

 private:
  struct Levelled {
    Sapling sapling;
    std::size_t first = 0, last = 0;  ///< in `reached`: the most recent level
  };

  /// False if nothing grew.
  bool grow_level(std::size_t number) {
    const std::size_t first = saplings_[number].first, last = saplings_[number].last;
    heads_.clear();
    for (std::size_t i = first; i < last; ++i) {
      const Sapling& sapling = saplings_[number].sapling;
      for (const Number link : leaving_[sapling.reached[i]]) {
        const Number head = links_[link].head;
        if (room_[link] == 0 || sapling.is_reached[head]) continue;
        if (best_[head] == kNone) heads_.push_back(head);
        if (best_[head] == kNone || room_[link] > room_[best_[head]]) best_[head] = link;
      }
    }
    for (const Number head : heads_) {
      const Number link = std::exchange(best_[head], kNone);
      Sapling& sapling = saplings_[number].sapling;
      std::optional<Sapling> rest = take(sapling, link, std::min(room_[link], sapling.multiplicity));
      if (rest) saplings_.push_back({std::move(*rest), first, last});  // the rest looks at this level again
    }
    saplings_[number].first = last;
    saplings_[number].last = saplings_[number].sapling.reached.size();
    return !heads_.empty();
  }

  static constexpr Number kNone = ~Number{0};

  std::vector<Levelled> saplings_;
  std::vector<Number> best_;   ///< by receiver: the link to take to it while a level grows
  std::vector<Number> heads_;  ///< receivers that have such a link
};

/// Grows one tree after another, looking ahead at every link.
class ExactGrowth : Grove {
 public:
  ExactGrowth(const std::vector<DirectLink>& links, std::span<const Amount> trees)
      : Grove(links, trees), left_(trees.begin(), trees.end()) {}

  std::vector<Sapling> run() {
    std::vector<Sapling> trees;
    for (Number root = 0; root < receivers_; ++root) {
      if (left_[root] == 0) continue;
      waiting_.push_back(planted(root, std::exchange(left_[root], 0)));
      waiting_.back().refused.resize(links_.size());
      while (!waiting_.empty()) {
        Sapling sapling = std::move(waiting_.back());
        waiting_.pop_back();
        while (!grown(sapling)) grow(sapling);
        trees.push_back(std::move(sapling));
      }
    }
    return trees;
  }

 private:
  void grow(Sapling& sapling) {
    for (const Number tail : sapling.reached) {
      const std::vector<Number>& leaving = leaving_[tail];
      for (std::size_t turn = 0; turn < leaving.size(); ++turn) {
        // Rotate, so that not every root starts with the same link.
        const Number link = leaving[(turn + sapling.root) % leaving.size()];
        if (room_[link] == 0 || sapling.is_reached[links_[link].head] || sapling.refused[link]) continue;
        const Amount room = room_for(sapling, link);
        if (room == 0) {
          sapling.refused[link] = true;
          continue;
        }
        if (std::optional<Sapling> rest = take(sapling, link, room)) waiting_.push_back(std::move(*rest));
        return;
      }
    }
    throw std::invalid_argument("the trees do not fit into the network");
  }

  /// How many of the sapling's trees may take the link so that all other trees can still be grown. For every set with
  /// the tail and without the head, that is its outgoing capacity minus the other trees that lie entirely in it. A
  /// minimum cut finds the smallest; arcs from the tail compensate for trees that reach out of the set.
  [[nodiscard]] Amount room_for(const Sapling& sapling, Number link) const {
    const Number tail = links_[link].tail, head = links_[link].head;
    std::vector<std::int32_t> tails, heads;
    std::vector<Amount> capacities;
    const auto arc = [&](Number from, Number to, Amount capacity) {
      tails.push_back(static_cast<std::int32_t>(from));
      heads.push_back(static_cast<std::int32_t>(to));
      capacities.push_back(capacity);
    };
    for (Number other = 0; other < links_.size(); ++other) {
      if (room_[other] > 0) arc(links_[other].tail, links_[other].head, room_[other]);
    }
    Amount others = 0;
    for (Number root = 0; root < receivers_; ++root) {
      others += left_[root];
      if (left_[root] > 0 && root != tail) arc(tail, root, left_[root]);
    }
    Number nodes = receivers_;
    for (const Sapling& waiting : waiting_) {
      others += waiting.multiplicity;
      const Number hub = nodes++;
      arc(tail, hub, waiting.multiplicity);
      for (const Number reached : waiting.reached) arc(hub, reached, waiting.multiplicity);
    }
    const Amount most = std::min(room_[link], sapling.multiplicity);
    const Amount through = FlowNetwork(nodes, tails, heads, capacities).augment(tail, head, others + most);
    return std::clamp(through - others, Amount{0}, most);
  }

  std::vector<Amount> left_;      ///< trees per root not yet started
  std::vector<Sapling> waiting_;  ///< started, to be continued
};

Forest columns(const std::vector<Sapling>& trees, const std::vector<DirectLink>& links) {
  Forest forest;
  for (const Sapling& tree : trees) {
    forest.root.push_back(tree.root);
    forest.multiplicity.push_back(tree.multiplicity);
    for (const Number link : tree.links) {
      forest.tail.push_back(links[link].tail);
      forest.head.push_back(links[link].head);
      forest.route.push_back(link);
    }
    forest.offset.push_back(static_cast<std::int64_t>(forest.tail.size()));
  }
  for (const DirectLink& link : links) {
    forest.route_link.insert(forest.route_link.end(), link.route.begin(), link.route.end());
    forest.route_offset.push_back(static_cast<std::int64_t>(forest.route_link.size()));
  }
  return forest;
}

}  // namespace

std::vector<std::int32_t> edge_depths(std::size_t edges, std::span<const std::int64_t> tails,
                                      std::span<const std::int64_t> heads) {
  std::vector<std::int32_t> depths(tails.size()), of_node(edges + 1);
  const auto end = static_cast<std::int64_t>(of_node.size());
  for (std::size_t edge = 0; edge < tails.size(); ++edge) {
    if (edge % edges == 0) std::ranges::fill(of_node, 0);
    if (std::min(tails[edge], heads[edge]) < 0 || std::max(tails[edge], heads[edge]) >= end) {
      throw std::invalid_argument("a tree's edge ends at no receiver");
    }
    depths[edge] = of_node[static_cast<std::size_t>(tails[edge])];
    of_node[static_cast<std::size_t>(heads[edge])] = depths[edge] + 1;
  }
  return depths;
}

Forest pack_forest(const ForestRequest& request) {
  if (request.trees.size() > request.nodes || request.tails.size() != request.heads.size() ||
      request.tails.size() != request.capacities.size()) {
    throw std::invalid_argument("a forest's network has columns of unequal length, or more receivers than nodes");
  }
  const std::vector<DirectLink> even = split_evenly(request);
  if (const auto trees = LevelGrowth(even, request.trees).run()) return columns(*trees, even);
  const std::vector<DirectLink> exact = without_relays(request);
  if (const auto trees = LevelGrowth(exact, request.trees).run()) return columns(*trees, exact);
  return columns(ExactGrowth(exact, request.trees).run(), exact);
}

}  // namespace syntony
