#include "solve/trees/negotiated.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

#include "solve/column_checks.hpp"

namespace syntony {
namespace {

using Number = std::uint32_t;

constexpr double kSoft = 4, kHard = 40;  ///< how steeply prices rise with load in the first and in the last round

constexpr double kStale = 1e-9;  ///< a hop whose cost rose by more since it was evaluated is queued again

class Negotiation {
 public:
  explicit Negotiation(const NegotiationRequest& request)
      : request_(request),
        leaving_(request.receivers),
        entering_(request.receivers),
        load_(request.seconds.size()),
        hops_(request.root.size()),
        deepest_(request.root.size()),
        arrival_(request.receivers),
        price_(request.seconds.size()),
        ahead_(request.receivers),
        reached_(request.receivers) {
    for (Number hop = 0; hop < request.src.size(); ++hop) {
      leaving_[index(request.src[hop])].push_back(hop);
      entering_[index(request.dst[hop])].push_back(hop);
    }
    const auto mean = [](std::span<const double> column) {
      return std::accumulate(column.begin(), column.end(), 0.0) /
             static_cast<double>(std::max<std::size_t>(1, column.size()));
    };
    dear_ = 1 / std::max(mean(request.seconds), std::numeric_limits<double>::min());
    late_ = request.patience / std::max(mean(request.delay), std::numeric_limits<double>::min());
  }

  NegotiatedTrees run() {
    NegotiatedTrees best;
    std::vector<Number> order(hops_.size());
    std::iota(order.begin(), order.end(), Number{0});
    for (Number round = 0; round < std::max(request_.rounds, Number{1}); ++round) {
      const double done = request_.rounds > 1 ? round / (request_.rounds - 1.0) : 1.0;
      steep_ = kSoft * std::pow(kHard / kSoft, done);
      std::ranges::shuffle(order, random_);
      for (const Number tree : order) {
        put(tree, -request_.weight[tree]);
        grow(tree);
      }
      const double busy = *std::ranges::max_element(load_);
      const double depth = depth_of_all();
      if (best.hop.empty() || busy + depth < best.busy + best.depth) {
        best = {{}, busy, depth};
        for (const std::vector<Number>& hops : hops_) best.hop.insert(best.hop.end(), hops.begin(), hops.end());
      }
    }
    return best;
  }

 private:
  struct Offer {
    double cost = 0;
    Number hop = 0;
  };

  static std::size_t index(std::int32_t number) { return static_cast<std::size_t>(number); }

  [[nodiscard]] std::span<const std::int32_t> links_of(Number hop) const {
    return request_.link.subspan(index(request_.offset[hop]), index(request_.offset[hop + 1] - request_.offset[hop]));
  }

  static std::size_t index(std::int64_t number) { return static_cast<std::size_t>(number); }

  void put(Number tree, double weight) {
    for (const Number hop : hops_[tree]) put_hop(hop, weight);
  }

  void put_hop(Number hop, double weight) {
    for (const std::int32_t link : links_of(hop)) load_[index(link)] += weight * request_.seconds[index(link)];
  }

  /// The price of the link for adding `weight`.
  [[nodiscard]] double price(std::size_t link, double weight) const {
    const double seconds = request_.seconds[link];
    return seconds * dear_ * std::exp(steep_ * ((load_[link] + weight * seconds) / request_.time - 1));
  }

  [[nodiscard]] double price_of_hop(Number hop) const {
    double sum = 0;
    for (const std::int32_t link : links_of(hop)) sum += price_[index(link)];
    return sum;
  }

  [[nodiscard]] double cost(Number hop, Number from, std::size_t to) const {
    return price_of_hop(hop) + ahead_[to] + late_ * (arrival_[from] + request_.delay[hop]);
  }

  /// Prices for a tree of `weight`: of every link, and of the cheapest hop out of every receiver. If all hops out of a
  /// receiver are expensive, the tree should end there.
  void look_around(const std::vector<std::vector<Number>>& around, double weight) {
    for (std::size_t link = 0; link < price_.size(); ++link) price_[link] = price(link, weight);
    for (std::size_t node = 0; node < around.size(); ++node) {
      double least = std::numeric_limits<double>::infinity();
      for (const Number hop : around[node]) least = std::min(least, price_of_hop(hop));
      ahead_[node] = std::isinf(least) ? 0.0 : least;
    }
  }

  void grow(Number number) {
    const bool backwards = request_.backwards[number] != 0;
    const std::vector<std::vector<Number>>& around = backwards ? entering_ : leaving_;
    const std::span<const std::int32_t> tails = backwards ? request_.dst : request_.src;
    const std::span<const std::int32_t> heads = backwards ? request_.src : request_.dst;
    const double weight = request_.weight[number];
    std::vector<Number>& hops = hops_[number];
    hops.clear();
    reached_.assign(request_.receivers, false);
    std::vector<Offer> offers;
    const auto offer = [&](Offer one) {
      offers.push_back(one);
      std::ranges::push_heap(offers, std::greater{}, &Offer::cost);  // the cheapest on top
    };
    const auto reach = [&](std::size_t node, double when) {
      reached_[node] = true;
      arrival_[node] = when;
      for (const Number hop : around[node]) {
        if (!reached_[index(heads[hop])]) offer({cost(hop, static_cast<Number>(node), index(heads[hop])), hop});
      }
    };
    deepest_[number] = 0;
    look_around(around, weight);
    reach(index(request_.root[number]), 0.0);
    while (hops.size() + 1 < request_.receivers) {
      if (offers.empty())
        throw std::invalid_argument("a receiver cannot be reached from " + std::to_string(request_.root[number]));
      std::ranges::pop_heap(offers, std::greater{}, &Offer::cost);
      const Offer best = offers.back();
      offers.pop_back();
      const std::size_t head = index(heads[best.hop]), tail = index(tails[best.hop]);
      if (reached_[head]) continue;
      const double now = cost(best.hop, static_cast<Number>(tail), head);
      if (now > best.cost * (1 + kStale)) {
        offer({now, best.hop});
        continue;
      }
      put_hop(best.hop, weight);
      for (const std::int32_t link : links_of(best.hop)) price_[index(link)] = price(index(link), weight);
      hops.push_back(best.hop);
      const double when = arrival_[tail] + request_.delay[best.hop];
      deepest_[number] = std::max(deepest_[number], when);
      reach(head, when);
    }
  }

  [[nodiscard]] double depth_of_all() const {
    std::array<double, 2> deepest{};
    for (std::size_t tree = 0; tree < deepest_.size(); ++tree) {
      double& way = deepest[request_.backwards[tree] != 0 ? 1 : 0];
      way = std::max(way, deepest_[tree]);
    }
    return deepest[0] + deepest[1];
  }

  const NegotiationRequest& request_;
  std::vector<std::vector<Number>> leaving_, entering_;  ///< hops by receiver
  std::vector<double> load_;                             ///< seconds for which each link is busy
  std::vector<std::vector<Number>> hops_;                ///< by tree
  std::vector<double> deepest_;                          ///< by tree: seconds
  std::vector<double> arrival_;                          ///< of the growing tree
  std::vector<double> price_;                            ///< of links, for the growing tree
  std::vector<double> ahead_;  ///< by receiver: the price for that tree to continue from there
  std::vector<bool> reached_;
  double steep_ = kSoft, dear_ = 1, late_ = 0;
  std::mt19937 random_{0};  // NOLINT(bugprone-random-generator-seed): the same question has the same answer
};

}  // namespace

NegotiatedTrees negotiated_trees(const NegotiationRequest& request) {
  const std::size_t hops = request.src.size(), trees = request.root.size();
  check_that(request.dst.size() == hops && request.delay.size() == hops && request.offset.size() == hops + 1,
             "the hops' columns are of unequal length");
  check_that(request.weight.size() == trees && request.backwards.size() == trees,
             "the trees' columns are of unequal length");
  check_that(request.time > 0 && !request.seconds.empty(), "trees need links, and time");
  const auto below = [](auto number, std::size_t end) { return number >= 0 && static_cast<std::size_t>(number) < end; };
  for (const std::span<const std::int32_t> ends : {request.src, request.dst}) {
    check_that(std::ranges::all_of(ends, [&](auto end) { return below(end, request.receivers); }),
               "a hop ends at no receiver");
  }
  check_that(std::ranges::all_of(request.root, [&](auto root) { return below(root, request.receivers); }),
             "a tree's root is not a receiver");
  check_that(std::ranges::all_of(request.link, [&](auto link) { return below(link, request.seconds.size()); }),
             "a hop takes a link that does not exist");
  check_that(request.offset.front() == 0 && request.offset.back() == static_cast<std::int64_t>(request.link.size()) &&
                 std::ranges::is_sorted(request.offset),
             "the hops' offsets do not fit their links");
  return Negotiation(request).run();
}

}  // namespace syntony
