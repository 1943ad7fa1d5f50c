#include "solve/graph/channel_search.hpp"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <tuple>

namespace syntony {
namespace {

constexpr double kRounding = 1e-9;
/// Each attempt may use one part of the steps that are left to a channel; the rest is for other starting points.
constexpr std::uint64_t kParts = 4;

class ChannelSearch {
 public:
  ChannelSearch(const ChannelProblem& problem, std::uint32_t most, std::uint64_t steps, std::uint32_t turn)
      : problem_(problem),
        nodes_(problem.gpus + problem.nets),
        most_(most),
        steps_(steps),
        turn_(turn),
        room_(problem.room.begin(), problem.room.end()),
        used_(problem.gpus, false) {}

  std::vector<std::int32_t> run() {
    begin();
    return best_;
  }

 private:
  /// A hop as a candidate: whether its links can carry it, how full the fullest becomes, and their total load.
  struct Offer {
    double fullest = 0;
    double total = 0;
    std::uint32_t distance = 0;
    std::uint32_t node = 0;
    auto operator<=>(const Offer&) const = default;
  };

  [[nodiscard]] std::size_t row() const { return problem_.gpus + 1; }
  [[nodiscard]] std::size_t count() const { return chosen_.size() / row(); }
  [[nodiscard]] bool over() const { return steps_ == 0 || best_.size() / row() == most_; }

  [[nodiscard]] bool offer(std::uint32_t src, std::uint32_t dst, Offer& found) const {
    const std::size_t hop = static_cast<std::size_t>(src) * nodes_ + dst;
    const auto first = static_cast<std::size_t>(problem_.offset[hop]);
    const auto last = static_cast<std::size_t>(problem_.offset[hop + 1]);
    if (first == last) return false;
    found = {};
    for (std::size_t i = first; i < last; i++) {
      const double room = room_[static_cast<std::size_t>(problem_.link[i])];
      if (problem_.cost[i] > room + kRounding) return false;
      const double share = problem_.cost[i] / std::max(room, kRounding);
      found.fullest = std::max(found.fullest, share);
      found.total += share;
    }
    found.distance = (dst + nodes_ * 2 - src + turn_) % nodes_;
    found.node = dst;
    return true;
  }

  void take(std::uint32_t src, std::uint32_t dst, double times) {
    const std::size_t hop = static_cast<std::size_t>(src) * nodes_ + dst;
    for (auto i = static_cast<std::size_t>(problem_.offset[hop]);
         i < static_cast<std::size_t>(problem_.offset[hop + 1]); i++)
      room_[static_cast<std::size_t>(problem_.link[i])] -= times * problem_.cost[i];
  }

  /// The next channel, starting from every network device and first GPU.
  void begin() {
    if (chosen_.size() > best_.size()) best_ = chosen_;
    if (over()) return;
    if (count() > 0) again();
    const std::uint64_t before = limit_;
    limit_ += (steps_ - std::min(steps_, limit_)) / kParts;
    if (problem_.nets == 0) {
      // It makes no difference where a closed channel starts.
      for (std::uint32_t first = 0; first < (problem_.closed ? 1 : problem_.gpus) && !given_up(); first++) {
        const std::uint32_t gpu = (first + turn_) % problem_.gpus;
        start(-1, gpu);
      }
    } else {
      std::vector<std::tuple<Offer, std::uint32_t>> starts;
      Offer found;
      for (std::uint32_t net = problem_.gpus; net < nodes_; net++)
        for (std::uint32_t gpu = 0; gpu < problem_.gpus; gpu++)
          if (offer(net, gpu, found)) starts.emplace_back(found, net);
      std::ranges::sort(starts);
      for (const auto& [one, net] : starts) {
        if (given_up()) break;
        if (!offer(net, one.node, found)) continue;
        take(net, one.node, 1);
        start(static_cast<std::int32_t>(net - problem_.gpus), one.node);
        take(net, one.node, -1);
      }
    }
    limit_ = before;
  }

  [[nodiscard]] bool given_up() const { return over() || steps_ <= limit_; }

  void start(std::int32_t net, std::uint32_t gpu) {
    chosen_.push_back(net);
    chosen_.push_back(static_cast<std::int32_t>(gpu));
    used_[gpu] = true;
    grow(gpu, 1);
    used_[gpu] = false;
    chosen_.resize(chosen_.size() - 2);
  }

  void grow(std::uint32_t last, std::uint32_t length) {
    if (given_up()) return;
    steps_--;
    if (length == problem_.gpus) {
      finish(last);
      return;
    }
    std::vector<Offer> offers;
    Offer found;
    for (std::uint32_t gpu = 0; gpu < problem_.gpus; gpu++)
      if (!used_[gpu] && offer(last, gpu, found)) offers.push_back(found);
    std::ranges::sort(offers);
    for (const Offer& one : offers) {
      if (given_up()) return;
      take(last, one.node, 1);
      used_[one.node] = true;
      chosen_.push_back(static_cast<std::int32_t>(one.node));
      grow(one.node, length + 1);
      chosen_.pop_back();
      used_[one.node] = false;
      take(last, one.node, -1);
    }
  }

  /// The way back, then the next channel.
  void finish(std::uint32_t last) {
    const std::size_t at = chosen_.size() - row();
    const std::int32_t net = chosen_[at];
    const std::uint32_t end =
        net >= 0 ? problem_.gpus + static_cast<std::uint32_t>(net) : static_cast<std::uint32_t>(chosen_[at + 1]);
    Offer found;
    const bool back = problem_.closed && end != last;
    if (back && !offer(last, end, found)) return;
    if (back) take(last, end, 1);
    std::vector<bool> mine(problem_.gpus, false);
    std::swap(mine, used_);
    begin();
    std::swap(mine, used_);
    if (back) take(last, end, -1);
  }

  /// Repeats the last channel if the links can carry it.
  void again() {
    const std::vector<std::int32_t> same(chosen_.end() - static_cast<std::ptrdiff_t>(row()), chosen_.end());
    std::vector<std::tuple<std::uint32_t, std::uint32_t>> hops;
    const bool across = same[0] >= 0;
    const std::uint32_t net = across ? problem_.gpus + static_cast<std::uint32_t>(same[0]) : 0;
    const auto gpu = [&](std::size_t position) { return static_cast<std::uint32_t>(same[position + 1]); };
    if (across) hops.emplace_back(net, gpu(0));
    for (std::size_t i = 0; i + 1 < problem_.gpus; i++) hops.emplace_back(gpu(i), gpu(i + 1));
    const std::uint32_t last = gpu(problem_.gpus - 1);
    if (problem_.closed && (across || last != gpu(0))) hops.emplace_back(last, across ? net : gpu(0));
    std::size_t taken = 0;
    Offer found;
    for (; taken < hops.size() && offer(std::get<0>(hops[taken]), std::get<1>(hops[taken]), found); taken++)
      take(std::get<0>(hops[taken]), std::get<1>(hops[taken]), 1);
    if (taken == hops.size()) {
      steps_ -= std::min<std::uint64_t>(steps_, 1);
      chosen_.insert(chosen_.end(), same.begin(), same.end());
      begin();
      chosen_.resize(chosen_.size() - row());
    }
    while (taken > 0) {
      taken--;
      take(std::get<0>(hops[taken]), std::get<1>(hops[taken]), -1);
    }
  }

  const ChannelProblem& problem_;
  std::uint32_t nodes_, most_;
  std::uint64_t steps_, limit_ = 0;
  std::uint32_t turn_;
  std::vector<double> room_;
  std::vector<bool> used_;
  std::vector<std::int32_t> chosen_, best_;
};

}  // namespace

std::vector<std::int32_t> find_channels(const ChannelProblem& problem, std::uint32_t most, std::uint64_t steps,
                                        std::uint32_t turn) {
  const std::size_t nodes = static_cast<std::size_t>(problem.gpus) + problem.nets;
  const auto in_order = std::ranges::is_sorted(problem.offset);
  if (problem.gpus == 0 || problem.offset.size() != nodes * nodes + 1 || !in_order || problem.offset.front() != 0 ||
      problem.offset.back() != static_cast<std::int64_t>(problem.link.size()) ||
      problem.link.size() != problem.cost.size())
    throw std::invalid_argument("the hops of the channels do not fit together");
  for (std::size_t i = 0; i < problem.link.size(); i++) {
    const auto link = problem.link[i];
    if (link < 0 || static_cast<std::size_t>(link) >= problem.room.size() || !(problem.cost[i] > 0))
      throw std::invalid_argument("a hop of the channels names no link, or costs nothing");
  }
  return ChannelSearch(problem, most, steps, turn).run();
}

}  // namespace syntony
