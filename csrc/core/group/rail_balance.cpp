#include "core/group/rail_balance.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace syntony {
namespace {

constexpr std::uint64_t kEvery = 16;

}  // namespace

std::shared_ptr<RailBalance::Comparison> RailBalance::due() {
  {
    const std::lock_guard lock(mutex_);
    if (++counted_ % kEvery != 0) return nullptr;
  }
  return std::make_shared<Comparison>(left(), std::vector<double>(ranks_, 1.0));
}

void RailBalance::launched(std::uint64_t sequence, std::shared_ptr<const Comparison> comparison) {
  const std::lock_guard lock(mutex_);
  launched_.push_back({sequence, std::move(comparison)});
}

std::optional<Shares> RailBalance::shares(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  while (launched_.size() > 1 && launched_[1].sequence + windows_ <= sequence) launched_.pop_front();
  if (launched_.empty() || launched_.front().sequence + windows_ > sequence) return std::nullopt;
  const std::vector<double>& left = launched_.front().comparison->all;
  if (std::ranges::adjacent_find(left, std::not_equal_to<>{}) == left.end()) return std::nullopt;
  return shares_for(left);
}

/// A host that has lost a card has lost as much towards all; the others only towards it.
double RailBalance::left() const {
  double most = 0;
  bool any = false;
  for (const std::shared_ptr<Wires>& wires : wires_) {
    std::map<std::uint32_t, std::pair<double, double>> of_peer;  // open, all
    for (const Wires::State& socket : wires->states()) {
      auto& [open, all] = of_peer[socket.peer];
      open += socket.lost ? 0 : 1;
      all += 1;
    }
    for (const auto& [_, counts] : of_peer) {
      any = true;
      most = std::max(most, counts.first / counts.second);
    }
  }
  return any && most > 0 ? most : 1;
}

}  // namespace syntony
