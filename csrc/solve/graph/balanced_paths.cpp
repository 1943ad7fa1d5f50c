#include "solve/graph/balanced_paths.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <queue>
#include <stdexcept>
#include <string>
#include <utility>

#include "solve/column_checks.hpp"
#include "solve/graph/adjacency.hpp"

namespace syntony {
namespace {

using Number = std::uint32_t;
constexpr double kFar = std::numeric_limits<double>::infinity();
constexpr Number kNone = ~Number{0};

constexpr double kFirstSteepness = 8, kMostSteepness = 4000;
constexpr double kSteeper = 1.5;     ///< per round with little gain
constexpr double kGain = 1e-3;       ///< a round that reduces the time by less has gained little
constexpr int kVainRounds = 8;       ///< rounds with little gain at full steepness after which the search ends
constexpr double kSettling = 100;    ///< steepness while most demands stay
constexpr std::size_t kTurns = 16;   ///< in which sources move meanwhile
constexpr double kNearlyFull = 0.8;  ///< of the tolerance: demands leave links that are loaded beyond this
constexpr double kCheaper = 1e-9;    ///< a path that is cheaper by less counts as equal

class PathSearch {
 public:
  explicit PathSearch(const PathRequest& request)
      : request_(request),
        leaving_(group_by_tail(request.nodes, request.tails, request.heads)),
        load_(request.tails.size()),
        price_(request.tails.size()),
        path_(request.source.size()),
        moved_(request.source.size()),
        distance_(request.nodes),
        last_(request.nodes) {
    read_hops();
    for (std::size_t demand = 0; demand < path_.size(); ++demand) add(demand, 1);
  }

  BalancedPaths run() {
    const auto begin = std::chrono::steady_clock::now();
    BalancedPaths best;
    best.time = kFar;
    time_ = request_.time;
    if (!request_.hop_demand.empty() && settle()) {
      keep(best, fullest());
      return best;
    }
    steepness_ = kFirstSteepness;
    double before = kFar;
    std::uint32_t rounds = 0;
    for (int vain = 0; vain < kVainRounds;) {
      reprice();
      prove(best);
      route([](std::size_t) { return true; });
      const double time = fullest();
      if (time < best.time) keep(best, time);
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
      if (best.time <= std::max(best.proven, request_.time) * (1 + request_.tolerance) ||
          spent.count() > request_.seconds || ++rounds >= request_.rounds) {
        break;
      }
      if (time > before * (1 - kGain)) {
        if (steepness_ >= kMostSteepness) ++vain;
        steepness_ = std::min(steepness_ * kSteeper, kMostSteepness);
      }
      before = time;
      time_ = best.time;
    }
    reprice();
    prove(best);
    return best;
  }

 private:
  void read_hops() {
    const std::span<const std::int32_t> of = request_.hop_demand;
    const std::span<const std::int64_t> offset = request_.hop_offset;
    std::vector<Number> length(path_.size());
    std::vector<bool> lost(path_.size());
    for (std::size_t hop = 0; hop < of.size(); ++hop) {
      if (of[hop] >= 0) length[static_cast<Number>(of[hop])] += static_cast<Number>(offset[hop + 1] - offset[hop]);
    }
    for (std::size_t demand = 0; demand < path_.size(); ++demand) path_[demand].reserve(length[demand]);
    for (const Number hop : by_step()) {
      if (of[hop] < 0) continue;
      const auto demand = static_cast<Number>(of[hop]);
      for (auto place = offset[hop]; place < offset[hop + 1]; ++place) {
        const std::int32_t link = request_.hop_link[static_cast<std::size_t>(place)];
        if (link < 0) lost[demand] = true;
        path_[demand].push_back(static_cast<Number>(link));
      }
    }
    for (std::size_t demand = 0; demand < path_.size(); ++demand) {
      if (lost[demand]) path_[demand].clear();
    }
  }

  /// The hops in order of their steps.
  [[nodiscard]] std::vector<Number> by_step() const {
    const std::span<const std::int32_t> step = request_.hop_step;
    std::vector<Number> hops(step.size());
    std::iota(hops.begin(), hops.end(), Number{0});
    if (!std::ranges::is_sorted(step)) std::ranges::stable_sort(hops, {}, [&](Number hop) { return step[hop]; });
    return hops;
  }

  /// Routes the demands without a path, and as many others as makes no link too full. False if that leads nowhere.
  bool settle() {
    steepness_ = kSettling;
    reprice();
    route([&](std::size_t demand) { return path_[demand].empty(); });
    double before = kFar, time = fullest();
    while (time < before * (1 - kGain)) {
      for (std::size_t turn = 0; turn < kTurns; ++turn) {
        if (fullest() <= request_.time * (1 + request_.tolerance)) return true;
        reprice();
        route([&](std::size_t demand) {
          return static_cast<std::size_t>(request_.source[demand]) % kTurns == turn &&
                 std::ranges::any_of(path_[demand], [&](Number link) { return too_full(link); });
        });
      }
      before = std::exchange(time, fullest());
    }
    return time <= request_.time * (1 + request_.tolerance);
  }

  [[nodiscard]] bool too_full(Number link) const {
    return load_[link] > request_.capacities[link] * request_.time * (1 + request_.tolerance * kNearlyFull);
  }

  void add(std::size_t demand, double sign) {
    for (const Number link : path_[demand]) load_[link] += sign * static_cast<double>(request_.weight[demand]);
  }

  [[nodiscard]] double price(Number link) const {
    const double capacity = request_.capacities[link];
    return std::exp(std::min(steepness_ * (load_[link] / capacity / time_ - 1), 500.0)) / capacity;
  }

  void reprice() {
    for (Number link = 0; link < price_.size(); ++link) price_[link] = price(link);
  }

  void reprice(const std::vector<Number>& links) {
    for (const Number link : links) price_[link] = price(link);
  }

  [[nodiscard]] double cost(const std::vector<Number>& links) const {
    double sum = 0;
    for (const Number link : links) sum += price_[link];
    return sum;
  }

  [[nodiscard]] double fullest() const {
    double most = 0;
    for (Number link = 0; link < load_.size(); ++link) most = std::max(most, load_[link] / request_.capacities[link]);
    return most;
  }

  /// Calls `each(first, last)` for the demands of each source in turn.
  template <class Each>
  void by_source(Each each) {
    for (std::size_t first = 0; first < path_.size();) {
      std::size_t last = first;
      while (last < path_.size() && request_.source[last] == request_.source[first]) ++last;
      each(first, last);
      first = last;
    }
  }

  /// Computes the bound that the prices prove now and keeps it if it is better: what all demands pay over what all
  /// links can earn.
  void prove(BalancedPaths& best) {
    double paid = 0, earned = 0;
    by_source([&](std::size_t first, std::size_t last) {
      search(static_cast<Number>(request_.source[first]));
      for (std::size_t demand = first; demand < last; ++demand) {
        paid += static_cast<double>(request_.weight[demand]) * distance_[target(demand)];
      }
    });
    for (Number link = 0; link < price_.size(); ++link) earned += price_[link] * request_.capacities[link];
    if (paid / earned > best.proven) {
      best.proven = paid / earned;
      best.prices = price_;
    }
  }

  /// Gives each of the wanted demands the path that is cheapest now.
  template <class Wanted>
  void route(Wanted wanted) {
    by_source([&](std::size_t first, std::size_t last) {
      wanted_.clear();
      for (std::size_t demand = first; demand < last; ++demand) {
        if (wanted(demand)) wanted_.push_back(demand);
      }
      if (wanted_.empty()) return;
      search(static_cast<Number>(request_.source[first]));
      for (const std::size_t demand : wanted_) reroute(demand);
    });
  }

  /// Compares at current prices, without the demand itself: others of its source have moved just now.
  void reroute(std::size_t demand) {
    std::vector<Number>& path = path_[demand];
    if (distance_[target(demand)] == kFar) {
      throw std::invalid_argument("node " + std::to_string(target(demand)) + " cannot be reached from node " +
                                  std::to_string(request_.source[demand]));
    }
    other_.clear();
    for (Number node = target(demand); last_[node] != kNone; node = tail(last_[node])) other_.push_back(last_[node]);
    std::ranges::reverse(other_);
    if (path == other_) return;
    add(demand, -1);
    reprice(path);
    if (path.empty() || cost(other_) < cost(path) * (1 - kCheaper)) {
      path.assign(other_.begin(), other_.end());
      moved_[demand] = true;
    }
    add(demand, 1);
    reprice(path);
  }

  [[nodiscard]] Number target(std::size_t demand) const { return static_cast<Number>(request_.target[demand]); }
  [[nodiscard]] Number tail(Number link) const { return static_cast<Number>(request_.tails[link]); }

  /// Cheapest paths from the node (Dijkstra); `last_[v]`: the link by which v is reached.
  void search(Number source) {
    std::ranges::fill(distance_, kFar);
    distance_[source] = 0;
    last_[source] = kNone;
    heap_.emplace(0, source);
    while (!heap_.empty()) {
      const auto [far, node] = heap_.top();
      heap_.pop();
      if (far > distance_[node]) continue;
      for (Number place = leaving_.first[node]; place < leaving_.first[node + 1]; ++place) {
        const Number link = leaving_.arc[place];
        const auto head = static_cast<Number>(request_.heads[link]);
        if (far + price_[link] < distance_[head]) {
          distance_[head] = far + price_[link];
          last_[head] = link;
          heap_.emplace(distance_[head], head);
        }
      }
    }
  }

  void keep(BalancedPaths& best, double time) const {
    best.time = time;
    best.demand.clear();
    best.link.clear();
    best.offset.assign(1, 0);
    for (std::size_t demand = 0; demand < path_.size(); ++demand) {
      if (!moved_[demand]) continue;
      best.demand.push_back(static_cast<std::int64_t>(demand));
      best.link.insert(best.link.end(), path_[demand].begin(), path_[demand].end());
      best.offset.push_back(static_cast<std::int64_t>(best.link.size()));
    }
  }

  const PathRequest& request_;
  Adjacency leaving_;
  std::vector<double> load_, price_;       ///< by link
  std::vector<std::vector<Number>> path_;  ///< by demand
  std::vector<bool> moved_;                ///< by demand: it no longer has the path that it came with
  double time_ = 0, steepness_ = 0;

  // State of one search; kept so that a search allocates nothing.
  std::vector<double> distance_;
  std::vector<Number> last_, other_;
  std::vector<std::size_t> wanted_;
  std::priority_queue<std::pair<double, Number>, std::vector<std::pair<double, Number>>, std::greater<>> heap_;
};

void check_below(const char* name, std::span<const std::int32_t> column, std::size_t limit) {
  for (std::size_t row = 0; row < column.size(); ++row) {
    if (column[row] >= 0 && static_cast<std::size_t>(column[row]) >= limit) {
      refuse(name, row, "is " + std::to_string(column[row]) + "; it must be below " + std::to_string(limit));
    }
  }
}

}  // namespace

BalancedPaths balanced_paths(const PathRequest& request) {
  const std::size_t demands = request.source.size(), links = request.tails.size(), hops = request.hop_demand.size();
  check_size("target", request.target, demands);
  check_size("weight", request.weight, demands);
  check_size("capacities", request.capacities, links);
  check_size("hop_step", request.hop_step, hops);
  check_size("hop_offset", request.hop_offset, hops + 1);
  check_offset("hop_offset", request.hop_offset, request.hop_link.size(), 0);
  check_below("hop_demand", request.hop_demand, demands);
  check_below("hop_link", request.hop_link, links);
  if (!(request.time > 0)) throw std::invalid_argument("the time to aim for must be positive");
  for (std::size_t demand = 0; demand < demands; ++demand) {
    for (const std::int32_t end : {request.source[demand], request.target[demand]}) {
      if (end < 0 || static_cast<std::uint32_t>(end) >= request.nodes) {
        throw std::invalid_argument("demand " + std::to_string(demand) + " ends at node " + std::to_string(end) +
                                    ", which does not exist");
      }
    }
  }
  return PathSearch(request).run();
}

}  // namespace syntony
