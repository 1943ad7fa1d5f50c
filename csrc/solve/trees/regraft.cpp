#include "solve/trees/regraft.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "solve/column_checks.hpp"
#include "solve/graph/adjacency.hpp"

namespace syntony {
namespace {

using Amount = std::int64_t;
using Number = std::uint32_t;

constexpr Number kNone = ~Number{0};
constexpr Amount kUnlimited = std::numeric_limits<Amount>::max();
constexpr std::array kAbove{1.01, 1.03, 1.1, 1.3, 2.0};  ///< factors on what a link may carry
constexpr double kAhead = 1.0 / 32;    ///< fraction of its room that a link may carry early while trees grow
constexpr std::size_t kMostParts = 4;  ///< per original tree; beyond this, trees are no longer split

/// `from[v]` is the parent of v, reached over `route[v]`; kNone at the root. `cut[v]`: that edge is lost.
struct Tree {
  Number root = 0;
  Amount weight = 0;
  bool backwards = false;
  std::vector<Number> from, route;
  std::vector<bool> cut;
  bool broken = false;
};

class Mending {
 public:
  explicit Mending(const RegraftRequest& request)
      : request_(request),
        onwards_{request.tails, request.heads, group_by_tail(request.nodes, request.heads, request.tails)},
        backwards_{request.heads, request.tails, group_by_tail(request.nodes, request.tails, request.heads)},
        room_(request.room.begin(), request.room.end()),
        most_(request.most.begin(), request.most.end()),
        load_(request.tails.size()),
        offset_(request.route_offset.begin(), request.route_offset.end()),
        via_(request.nodes),
        width_(request.nodes),
        seen_(request.nodes) {
    link_.reserve(request.route_link.size());
    for (const Amount link : request.route_link) link_.push_back(link < 0 ? kNone : static_cast<Number>(link));
    trees_.reserve(request.root.size());
    for (std::size_t number = 0; number < request.root.size(); ++number) {
      trees_.push_back({.root = static_cast<Number>(request.root[number]),
                        .weight = request.weight[number],
                        .backwards = request.backwards[number] != 0,
                        .from = std::vector<Number>(request.receivers, kNone),
                        .route = std::vector<Number>(request.receivers, kNone),
                        .cut = std::vector<bool>(request.receivers)});
    }
    owe();
    for (std::size_t number = 0; !request.tail.empty() && number < trees_.size(); ++number) read(number);
  }

  Forest run() {
    const std::size_t most_trees = kMostParts * trees_.size();
    if (request_.tail.empty()) grow_all();
    std::vector<Tree> best;
    double least = std::numeric_limits<double>::infinity();
    for (Number round = 0;; ++round) {
      if (round > 0 && (round > request_.rounds || !shed())) break;
      for (std::size_t number = 0; number < trees_.size(); ++number) {
        if (trees_[number].broken) mend(number, most_trees);
      }
      if (const double fullest = fullest_link(); best.empty() || fullest < least) {
        best = trees_;
        least = fullest;
      }
    }
    trees_ = std::move(best);
    return columns();
  }

 private:
  /// The links in the direction in which spreading trees, or summing ones, use them.
  struct Way {
    std::span<const std::int32_t> tails, heads;
    Adjacency arriving;
  };

  /// The load of the fullest link, relative to what it should carry.
  [[nodiscard]] double fullest_link() const {
    double most = 0;
    for (std::size_t link = 0; link < load_.size(); ++link) {
      if (load_[link] > 0)
        most = std::max(most, static_cast<double>(load_[link]) / static_cast<double>(request_.room[link]));
    }
    return most;
  }

  void read(std::size_t number) {
    const Number receivers = request_.receivers;
    Tree& tree = trees_[number];
    const std::size_t first = number * (receivers - 1);
    for (std::size_t edge = first; edge < first + receivers - 1; ++edge) {
      const auto head = static_cast<Number>(request_.head[edge]), tail = static_cast<Number>(request_.tail[edge]);
      if (head >= receivers || tail >= receivers) throw std::invalid_argument("a tree's edge ends at no receiver");
      tree.from[head] = tail;
      tree.route[head] = static_cast<Number>(edge);
      const std::span<const Number> links = links_of(static_cast<Number>(edge));
      const bool lost = std::ranges::find(links, kNone) != links.end();
      tree.cut[head] = lost;
      tree.broken = tree.broken || lost;
      if (!lost) put(tree, static_cast<Number>(edge), tree.weight);
    }
  }

  [[nodiscard]] std::span<const Number> links_of(Number route) const {
    return std::span(link_).subspan(static_cast<std::size_t>(offset_[route]),
                                    static_cast<std::size_t>(offset_[route + 1] - offset_[route]));
  }

  void put(const Tree& tree, Number route, Amount weight) {
    for (const Number link : links_of(route)) {
      load_[link] += weight;
      load_of_[tree.backwards ? 1 : 0][link] += weight;
    }
  }

  /// Finds links that are a receiver's only connection to spreading trees, or to summing trees. Each such tree will
  /// need its room there, so trees of the other direction must leave that much.
  void owe() {
    for (const bool backwards : {false, true}) {
      const Way& way = backwards ? backwards_ : onwards_;
      std::vector<Amount>& owed = owed_[backwards ? 1 : 0];
      owed.assign(load_.size(), 0);
      load_of_[backwards ? 1 : 0].assign(load_.size(), 0);
      std::vector<Amount> rooted(request_.nodes);
      Amount all = 0;
      for (const Tree& tree : trees_) {
        if (tree.backwards != backwards) continue;
        rooted[tree.root] += tree.weight;
        all += tree.weight;
      }
      for (Number node = 0; node < request_.receivers; ++node) {
        const Number first = way.arriving.first[node];
        if (way.arriving.first[node + 1] - first == 1) owed[way.arriving.arc[first]] = all - rooted[node];
      }
    }
  }

  /// Cuts trees on overloaded links until these carry what they should. False if no link is overloaded.
  bool shed() {
    std::vector<std::vector<std::pair<Number, Number>>> users(load_.size());
    if (!learn()) return false;
    for (Number number = 0; number < trees_.size(); ++number) {
      const Tree& tree = trees_[number];
      for (Number node = 0; node < tree.from.size(); ++node) {
        if (tree.from[node] == kNone) continue;
        for (const Number link : links_of(tree.route[node])) {
          if (load_[link] > request_.most[link]) users[link].emplace_back(number, node);
        }
      }
    }
    for (std::size_t link = 0; link < users.size(); ++link) {
      std::ranges::shuffle(users[link], random_);
      for (const auto& [number, node] : users[link]) {
        if (load_[link] <= room_[link]) break;
        Tree& tree = trees_[number];
        if (tree.cut[node]) continue;
        tree.cut[node] = tree.broken = true;
        put(tree, tree.route[node], -tree.weight);
      }
    }
    return true;
  }

  [[nodiscard]] const Way& way_of(const Tree& tree) const { return tree.backwards ? backwards_ : onwards_; }

  void grow_all() {
    const std::size_t count = trees_.size();
    for (std::size_t number = 0; number < count; ++number) {
      scale_ = std::min(static_cast<double>(number + 1) / static_cast<double>(count) + kAhead, 1.0);
      grow(number);
    }
    scale_ = 1;
  }

  /// Reduces the room of overloaded links from now on: trees without an alternative still take them, others no longer
  /// do. False if no link is overloaded.
  bool learn() {
    bool any = false;
    for (std::size_t link = 0; link < load_.size(); ++link) {
      if (load_[link] <= request_.most[link]) continue;
      any = true;
      room_[link] -= load_[link] - request_.room[link];
      most_[link] -= load_[link] - request_.room[link];
    }
    return any;
  }

  /// Grows a whole tree from its root: receivers near the root first, and those that find no room once more at the end.
  void grow(std::size_t number) {
    spread(trees_[number]);
    waiting_ = by_distance(trees_[number]);
    const auto hang_all = [&](auto&& hung) {
      for (std::size_t before = 0; !waiting_.empty() && before != waiting_.size();) {
        before = waiting_.size();
        std::erase_if(waiting_, [&](Number node) {
          pending_.assign(1, node);
          return hung();
        });
      }
    };
    hang_all([&] { return hang(number, room_, false); });
    hang_all([&] { return hang(number, most_, false); });
    hang_all([&] { return hang_above(number); });
    if (!waiting_.empty()) unreachable(number, waiting_.front());
  }

  /// All receivers but the root, by number of links in between; ties are in random order, so that no link is always
  /// first.
  std::vector<Number> by_distance(const Tree& tree) {
    const Way& way = tree.backwards ? onwards_ : backwards_;  // walked from the root
    std::vector<Number> hops(request_.nodes, kNone), nodes{tree.root}, order;
    hops[tree.root] = 0;
    for (std::size_t place = 0; place < nodes.size(); ++place) {
      const Number at = nodes[place];
      for (Number arc = way.arriving.first[at]; arc < way.arriving.first[at + 1]; ++arc) {
        const auto next = static_cast<Number>(way.tails[way.arriving.arc[arc]]);
        if (hops[next] != kNone) continue;
        hops[next] = hops[at] + 1;
        nodes.push_back(next);
      }
    }
    for (Number receiver = 0; receiver < request_.receivers; ++receiver) {
      if (receiver != tree.root) order.push_back(receiver);
    }
    std::ranges::shuffle(order, random_);
    std::ranges::stable_sort(order, {}, [&](Number receiver) { return hops[receiver]; });
    return order;
  }

  [[noreturn]] void unreachable(std::size_t number, Number receiver) const {
    throw std::invalid_argument("receiver " + std::to_string(receiver) + " cannot be reached from " +
                                std::to_string(trees_[number].root));
  }

  void mend(std::size_t number, std::size_t most_trees) {
    trees_[number].broken = false;
    spread(trees_[number]);
    while (!pending_.empty()) {
      const bool hung = hang(number, room_, false) || hang(number, most_, false) ||
                        (trees_.size() < most_trees && hang(number, most_, true)) || hang_above(number);
      if (!hung) unreachable(number, pending_.front());
      std::erase_if(pending_, [&](Number node) { return reached_[node]; });
    }
  }

  /// Finds what the tree still reaches, its child lists, and what is pending: heads of branches, then the rest.
  void spread(const Tree& tree) {
    children_.assign(tree.from.size(), {});
    for (Number node = 0; node < tree.from.size(); ++node) {
      if (tree.from[node] != kNone && !tree.cut[node]) children_[tree.from[node]].push_back(node);
    }
    reached_.assign(tree.from.size(), false);
    depth_.assign(tree.from.size(), 0);
    reach(tree.root, 0);
    pending_.clear();
    for (Number node = 0; node < tree.from.size(); ++node) {
      if (tree.cut[node] && !reached_[node]) pending_.push_back(node);
    }
    for (std::size_t place = 0; place < pending_.size(); ++place) {
      const std::vector<Number>& below = children_[pending_[place]];
      pending_.insert(pending_.end(), below.begin(), below.end());
    }
  }

  /// Marks the node, `depth` edges from the root, and everything below it as reached.
  void reach(Number node, Number depth) {
    stack_.assign(1, node);
    reached_[node] = true;
    depth_[node] = depth;
    while (!stack_.empty()) {
      const Number at = stack_.back();
      stack_.pop_back();
      for (const Number child : children_[at]) {
        if (reached_[child]) continue;
        stack_.push_back(child);
        reached_[child] = true;
        depth_[child] = depth_[at] + 1;
      }
    }
  }

  /// Attaches some pending receiver to a reached one within the limit (none: anywhere). `split`: part of the tree is
  /// enough; the other part stays broken.
  bool hang(std::size_t number, std::span<const Amount> limit, bool split) {
    const Amount need = split ? 1 : trees_[number].weight;
    for (const Number node : pending_) {
      const std::optional<Found> found = search(trees_[number].backwards, node, need, limit);
      if (!found) continue;
      if (found->width < trees_[number].weight) {
        Tree rest = trees_[number];
        rest.weight -= found->width;
        rest.broken = true;
        trees_[number].weight = found->width;
        trees_.push_back(std::move(rest));
      }
      Tree& tree = trees_[number];
      if (tree.from[node] != kNone && !tree.cut[node]) put(tree, tree.route[node], -tree.weight);
      tree.cut[node] = false;
      tree.from[node] = found->from;
      tree.route[node] = add_route(way_of(tree), node, found->last);
      put(tree, tree.route[node], tree.weight);
      reach(node, depth_[found->from] + 1);
      return true;
    }
    return false;
  }

  /// Attaches some pending receiver where it overloads links as little as possible.
  bool hang_above(std::size_t number) {
    const double scale = scale_;
    for (const double above : kAbove) {
      scale_ = scale * above;
      if (hang(number, request_.most, false)) {
        scale_ = scale;
        return true;
      }
    }
    scale_ = scale;
    return hang(number, {}, false);
  }

  struct Found {
    Number from = 0, last = 0;  ///< the reached receiver, and the last link on the way from it
    Amount width = 0;
  };

  /// The nearest reached receiver with room for `need` trees to `node`, through relays; among those the nearest to the
  /// root; among those the one with the widest route.
  std::optional<Found> search(bool backwards, Number node, Amount need, std::span<const Amount> limit) {
    const Way& way = backwards ? backwards_ : onwards_;
    const std::vector<Amount>& carried = load_of_[backwards ? 1 : 0];
    const std::vector<Amount>& owed = owed_[backwards ? 0 : 1];
    ++visit_;
    seen_[node] = visit_;
    width_[node] = kUnlimited;
    level_.assign(1, node);
    std::optional<Found> best;
    while (!level_.empty() && !best) {
      next_.clear();
      for (const Number at : level_) {
        for (Number place = way.arriving.first[at]; place < way.arriving.first[at + 1]; ++place) {
          const Number link = way.arriving.arc[place];
          // Anywhere: the smaller a link's relative load, the wider it counts.
          const Amount left = limit.empty() ? kUnlimited / 2 - overload(link)
                                            : std::min(scaled(limit[link]) - load_[link],
                                                       scaled(limit[link] - owed[link]) - carried[link]);
          if (left < need || (limit.empty() && request_.room[link] == 0)) continue;
          const auto tail = static_cast<Number>(way.tails[link]);
          const Amount width = std::min(width_[at], left);
          if (tail < request_.receivers) {
            if (reached_[tail] && (!best || depth_[tail] < depth_[best->from] ||
                                   (depth_[tail] == depth_[best->from] && width > best->width))) {
              best = Found{tail, link, width};
            }
          } else if (seen_[tail] != visit_) {
            seen_[tail] = visit_;
            width_[tail] = width;
            via_[tail] = link;
            next_.push_back(tail);
          }
          if (best && best->last == link) from_relay_ = at;
        }
      }
      std::swap(level_, next_);
    }
    return best;
  }

  [[nodiscard]] Amount scaled(Amount limit) const {
    return scale_ == 1 ? limit : static_cast<Amount>(static_cast<double>(limit) * scale_);
  }

  /// The load in millionths of what the link may carry.
  [[nodiscard]] Amount overload(Number link) const {
    return static_cast<Amount>(1e6 * static_cast<double>(load_[link]) / static_cast<double>(request_.most[link] + 1));
  }

  /// The route that `search` found last: its first link, then from relay to relay in order.
  Number add_route(const Way& way, Number node, Number first) {
    link_.push_back(first);
    for (Number at = from_relay_; at != node; at = static_cast<Number>(way.heads[link_.back()])) {
      link_.push_back(via_[at]);
    }
    offset_.push_back(static_cast<Amount>(link_.size()));
    return static_cast<Number>(offset_.size() - 2);
  }

  Forest columns() {
    Forest forest;
    for (const Tree& tree : trees_) {
      forest.root.push_back(tree.root);
      forest.multiplicity.push_back(tree.weight);
      spread(tree);
      stack_.assign(1, tree.root);
      for (std::size_t place = 0; place < stack_.size(); ++place) {
        for (const Number child : children_[stack_[place]]) {
          forest.tail.push_back(tree.from[child]);
          forest.head.push_back(child);
          forest.route.push_back(tree.route[child]);
          stack_.push_back(child);
        }
      }
      forest.offset.push_back(static_cast<Amount>(forest.tail.size()));
    }
    forest.route_offset.assign(offset_.begin(), offset_.end());
    forest.route_link = std::move(link_);
    return forest;
  }

  const RegraftRequest& request_;
  Way onwards_, backwards_;
  double scale_ = 1;                 ///< scales all limits: less while trees grow, more if nothing else is left
  std::vector<Amount> room_, most_;  ///< by link: as requested, less what was too much before
  std::vector<Amount> load_;         ///< by link: number of trees that use it,
  std::array<std::vector<Amount>, 2> load_of_,  ///< of those, the spreading and the summing ones,
      owed_;                                    ///< and how many of each will need it as a receiver's only link
  std::vector<Tree> trees_;
  std::vector<Amount> offset_;
  std::vector<Number> link_;  ///< all routes
  std::mt19937 random_{0};    // NOLINT(bugprone-random-generator-seed): the same question has the same answer

  // State of the tree that is being repaired.
  std::vector<std::vector<Number>> children_;
  std::vector<bool> reached_;
  std::vector<Number> depth_;  ///< of those that are reached
  std::vector<Number> pending_, waiting_;

  // State of one search; kept so that a search allocates nothing.
  std::vector<Number> via_;  ///< by relay: the link by which it continues
  std::vector<Amount> width_;
  std::vector<std::uint64_t> seen_;
  std::uint64_t visit_ = 0;
  Number from_relay_ = 0;
  std::vector<Number> level_, next_, stack_;
};

}  // namespace

Forest regraft(const RegraftRequest& request) {
  const std::size_t links = request.tails.size(), trees = request.root.size();
  check_that(request.receivers >= 1 && request.receivers <= request.nodes, "there are more receivers than nodes");
  const std::size_t edges = trees * (request.receivers - 1);
  check_that(request.heads.size() == links && request.room.size() == links && request.most.size() == links,
             "the links' columns are of unequal length");
  const bool grown = request.tail.empty() && request.head.empty() && request.route_link.empty();
  check_that(
      request.weight.size() == trees && request.backwards.size() == trees &&
          ((request.tail.size() == edges && request.head.size() == edges && request.route_offset.size() == edges + 1) ||
           (grown && request.route_offset.size() == 1)),
      "the trees' columns do not fit together");
  for (const std::int64_t link : request.route_link) {
    check_that(link < static_cast<std::int64_t>(links), "a route takes a link that does not exist");
  }
  check_that(!request.route_offset.empty() && request.route_offset.front() == 0 &&
                 request.route_offset.back() == static_cast<std::int64_t>(request.route_link.size()) &&
                 std::ranges::is_sorted(request.route_offset),
             "the routes' offsets do not fit their links");
  for (const std::int64_t root : request.root) {
    check_that(root >= 0 && root < static_cast<std::int64_t>(request.receivers), "a tree's root is not a receiver");
  }
  return Mending(request).run();
}

}  // namespace syntony
