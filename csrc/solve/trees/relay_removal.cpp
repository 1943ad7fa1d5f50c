#include "solve/trees/relay_removal.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "solve/graph/max_flow.hpp"
#include "solve/trees/even_split.hpp"

namespace syntony {
namespace {

using Amount = std::int64_t;
using Number = std::uint32_t;

/// The network during reduction: some relays are gone, replaced by links with routes.
class Splitting {
 public:
  explicit Splitting(const ForestRequest& request)
      : receivers_(static_cast<Number>(request.trees.size())),
        nodes_(request.nodes),
        trees_(request.trees.begin(), request.trees.end()),
        wanted_(std::accumulate(trees_.begin(), trees_.end(), Amount{0})) {
    for (Number link = 0; link < request.tails.size(); ++link) {
      links_.push_back({static_cast<Number>(request.tails[link]),
                        static_cast<Number>(request.heads[link]),
                        request.capacities[link],
                        {link}});
    }
  }

  std::vector<DirectLink> evenly() {
    drop_empty();
    for (Number relay = receivers_; relay < nodes_; ++relay) {
      const Ends ends = ends_of(relay);
      if (!ends.in.empty()) links_ = split_evenly(ends);
    }
    return std::move(links_);
  }

  std::vector<DirectLink> exactly() {
    drop_empty();
    if (!fits(links_)) throw std::invalid_argument("the trees do not fit into the network");
    for (Number relay = receivers_; relay < nodes_; ++relay) remove(relay);
    return std::move(links_);
  }

 private:
  void drop_empty() {
    std::erase_if(links_, [](const DirectLink& link) { return link.capacity == 0 || link.tail == link.head; });
  }

  /// The condition: every receiver can be sent all trees at once, each from its root.
  [[nodiscard]] bool fits(const std::vector<DirectLink>& links) const {
    Network network(*this, links);
    FlowNetwork flow = network.build();
    Amount have = 0;
    for (Number receiver = 0; receiver < receivers_; ++receiver) {
      // Flow that had arrived at the previous receiver continues to this one.
      if (receiver > 0) have = flow.augment(receiver - 1, receiver, wanted_);
      if (have < wanted_) have += flow.augment(network.source, receiver, wanted_ - have);
      if (have < wanted_) return false;
    }
    return true;
  }

  /// The arcs of a flow problem: the links, the roots' supply from one source, and the arcs that the query adds.
  struct Network {
    Number source;
    std::vector<std::int32_t> tails, heads;
    std::vector<Amount> capacities;

    Network(const Splitting& splitting, const std::vector<DirectLink>& links) : source(splitting.nodes_) {
      for (const DirectLink& link : links) arc(link.tail, link.head, link.capacity);
      for (Number root = 0; root < splitting.receivers_; ++root) {
        if (splitting.trees_[root] > 0) arc(source, root, splitting.trees_[root]);
      }
    }
    void arc(Number tail, Number head, Amount capacity) {
      tails.push_back(static_cast<std::int32_t>(tail));
      heads.push_back(static_cast<std::int32_t>(head));
      capacities.push_back(capacity);
    }
    [[nodiscard]] FlowNetwork build() const { return {source + 1, tails, heads, capacities}; }
  };

  struct Ends {
    std::vector<Number> in, out;  ///< links that lead to a relay, and away from it
  };

  [[nodiscard]] Ends ends_of(Number relay) const {
    Ends ends;
    Amount taken = 0, sent = 0;
    for (Number link = 0; link < links_.size(); ++link) {
      if (links_[link].head == relay) {
        ends.in.push_back(link);
        taken += links_[link].capacity;
      } else if (links_[link].tail == relay) {
        ends.out.push_back(link);
        sent += links_[link].capacity;
      }
    }
    if (taken != sent) {
      throw std::invalid_argument("relay " + std::to_string(relay) + " can take in " + std::to_string(taken) +
                                  " and send out " + std::to_string(sent) + "; a forest needs them equal");
    }
    return ends;
  }

  [[nodiscard]] std::vector<bool> heads_from(Number tail) const {
    std::vector<bool> heads(nodes_);
    for (const DirectLink& link : links_) {
      if (link.tail == tail) heads[link.head] = true;
    }
    return heads;
  }

  void remove(Number relay) {
    const Ends ends = ends_of(relay);
    if (ends.in.empty()) return;
    std::vector<DirectLink> even = split_evenly(ends);
    if (fits(even)) {
      links_ = std::move(even);
      return;
    }
    for (const Number leaving : ends.out) {
      for (const bool back : {false, true}) {  // pairs that lead back where they came from go last: they are lost
        for (const Number coming : ends.in) {
          if ((links_[coming].tail == links_[leaving].head) == back) split(coming, leaving, relay);
        }
      }
    }
    drop_empty();
  }

  static DirectLink joined(const DirectLink& first, const DirectLink& second, Amount capacity) {
    DirectLink link{first.tail, second.head, capacity, first.route};
    link.route.insert(link.route.end(), second.route.begin(), second.route.end());
    return link;
  }

  /// Splits all pairs of the relay's links at once: first evenly among receivers that it is the first to join (links
  /// between receivers joined already would carry traffic that has shorter routes), then among all. Capacity without a
  /// partner is lost.
  [[nodiscard]] std::vector<DirectLink> split_evenly(const Ends& ends) const {
    const auto& [in, out] = ends;
    std::vector<Amount> shares(in.size() * out.size(), 0), coming, leaving;
    for (const Number link : in) coming.push_back(links_[link].capacity);
    for (const Number link : out) leaving.push_back(links_[link].capacity);
    std::vector<bool> apart(shares.size()), unlike(shares.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::vector<bool> joined_already = heads_from(links_[in[i]].tail);
      for (std::size_t o = 0; o < out.size(); ++o) {
        const Number head = links_[out[o]].head;
        unlike[i * out.size() + o] = head != links_[in[i]].tail;
        apart[i * out.size() + o] = head != links_[in[i]].tail && !joined_already[head];
      }
    }
    share_evenly(coming, leaving, apart, shares);
    share_evenly(coming, leaving, unlike, shares);
    std::vector<DirectLink> links;
    for (const DirectLink& link : links_) {
      const Number relay = links_[in.front()].head;
      if (link.head != relay && link.tail != relay) links.push_back(link);
    }
    for (std::size_t i = 0; i < in.size(); ++i) {
      for (std::size_t o = 0; o < out.size(); ++o) {
        const Amount amount = shares[i * out.size() + o];
        if (amount > 0) links.push_back(joined(links_[in[i]], links_[out[o]], amount));
      }
    }
    return links;
  }

  /// Splits one pair of links by the largest amount that keeps the condition.
  void split(Number coming, Number leaving, Number relay) {
    Amount amount = std::min(links_[coming].capacity, links_[leaving].capacity);
    if (amount == 0) return;
    const Number from = links_[coming].tail, to = links_[leaving].head;
    amount = std::min(amount, spare_within(from, to, relay, amount));
    if (amount > 0) amount = std::min(amount, spare_around(from, to, relay, amount));
    if (amount == 0) return;
    DirectLink link = joined(links_[coming], links_[leaving], amount);
    links_[coming].capacity -= amount;
    links_[leaving].capacity -= amount;
    if (from != to) links_.push_back(std::move(link));
  }

  /// The slack of sets that contain both ends but not the relay: their outgoing capacity minus all trees.
  [[nodiscard]] Amount spare_within(Number from, Number to, Number relay, Amount enough) const {
    for (Number receiver = 0; receiver < receivers_ && enough > 0; ++receiver) {
      if (receiver == from || receiver == to) continue;
      Network network(*this, links_);
      const Amount unlimited = wanted_ + enough;
      network.arc(network.source, from, unlimited);
      network.arc(network.source, to, unlimited);
      network.arc(receiver, relay, unlimited);
      FlowNetwork flow = network.build();
      enough = std::min(enough, flow.augment(network.source, relay, wanted_ + enough) - wanted_);
    }
    return std::max(enough, Amount{0});
  }

  /// The slack of sets that contain the relay but neither end: their outgoing capacity minus all trees.
  [[nodiscard]] Amount spare_around(Number from, Number to, Number relay, Amount enough) const {
    for (Number receiver = 0; receiver < receivers_ && enough > 0; ++receiver) {
      const bool an_end = receiver == from || receiver == to;
      if (!an_end && (from < receivers_ || to < receivers_)) continue;  // an end is itself the receiver outside
      Network network(*this, links_);
      const Amount unlimited = wanted_ + enough;
      network.arc(network.source, relay, unlimited);
      if (from != receiver) network.arc(from, receiver, unlimited);
      if (to != receiver) network.arc(to, receiver, unlimited);
      FlowNetwork flow = network.build();
      enough = std::min(enough, flow.augment(network.source, receiver, wanted_ + enough) - wanted_);
    }
    return std::max(enough, Amount{0});
  }

  Number receivers_, nodes_;
  std::vector<Amount> trees_;
  Amount wanted_;  ///< total number of trees
  std::vector<DirectLink> links_;
};

}  // namespace

std::vector<DirectLink> split_evenly(const ForestRequest& request) { return Splitting(request).evenly(); }

std::vector<DirectLink> without_relays(const ForestRequest& request) { return Splitting(request).exactly(); }

}  // namespace syntony
