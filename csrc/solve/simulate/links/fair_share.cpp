#include "solve/simulate/links/fair_share.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

namespace syntony {
namespace {

// Levels that are equal in the model differ by rounding; closer ones count as equal.
constexpr double kSame = 1e-12;

}  // namespace

FairShare::FairShare(std::vector<double> capacity) : links_(capacity.size()) {
  for (std::size_t link = 0; link < capacity.size(); ++link) links_[link].capacity = capacity[link];
}

void FairShare::add(std::uint32_t flow, std::span<const Crossing> crossings) {
  begin_change();
  if (flow >= rate_.size()) {
    places_.resize(flow + 1);
    rate_.resize(flow + 1);
    before_.resize(flow + 1);
    in_region_.resize(flow + 1);
  }
  std::vector<Place>& mine = places_[flow];
  rate_[flow] = kUnsettled;
  for (const Crossing& crossing : crossings) {
    Link& link = links_[crossing.link];
    link.riders.push_back({flow, static_cast<std::uint32_t>(mine.size()), crossing.weight});
    mine.push_back({crossing.link, static_cast<std::uint32_t>(link.riders.size() - 1), crossing.weight});
    enter(crossing.link);
  }
  added_.push_back(flow);
}

void FairShare::remove(std::uint32_t flow) {
  begin_change();
  slowest_removed_ = std::min(slowest_removed_, rate_[flow]);
  for (const Place& place : places_[flow]) {
    std::vector<Rider>& riders = links_[place.link].riders;
    riders[place.position] = riders.back();
    places_[riders[place.position].flow][riders[place.position].place].position = place.position;
    riders.pop_back();
    enter(place.link);
  }
  places_[flow].clear();
  rate_[flow] = 0;
}

std::span<const std::uint32_t> FairShare::settle() {
  begin_change();
  changed_.clear();
  if (region_.empty()) return changed_;
  const double least = floor();
  find_region(least);
  fill(least);
  for (const std::uint32_t link : region_) links_[link].in_region = false;
  for (const std::uint32_t flow : changed_) in_region_[flow] = 0;
  added_.clear();
  slowest_removed_ = kUnsettled;
  settled_ = true;
  return changed_;
}

double FairShare::load(std::uint32_t link) const {
  double sum = 0;
  for (const Rider& rider : links_[link].riders) sum += rider.weight * rate_[rider.flow];
  return sum;
}

/// The links of the last settle are forgotten when the next change begins.
void FairShare::begin_change() {
  if (!settled_) return;
  settled_ = false;
  region_.clear();
}

void FairShare::enter(std::uint32_t link) {
  if (std::exchange(links_[link].in_region, true)) return;
  region_.push_back(link);
}

/// The level below which nothing has changed.
double FairShare::floor() const {
  double least = slowest_removed_;
  for (const std::uint32_t flow : added_) {
    for (const Place& place : places_[flow]) {
      const Link& link = links_[place.link];
      double weight = 0;
      for (const Rider& rider : link.riders) weight += rider.weight;
      least = std::min(least, link.capacity / weight);
    }
  }
  return least * (1 - 1e-9);
}

/// Adds to the region all links connected to it by flows at `floor` or above; `changed_` receives these flows.
void FairShare::find_region(double floor) {
  std::size_t next = 0;
  while (next < region_.size()) {  // the region grows meanwhile
    Link& link = links_[region_[next++]];
    link.left = link.capacity;
    link.weight = 0;
    link.rising = 0;
    for (const Rider& rider : link.riders) {
      const double rate = rate_[rider.flow];
      if (in_region_[rider.flow] == 0 && rate < floor) {
        link.left -= rider.weight * rate;
        continue;
      }
      link.weight += rider.weight;
      ++link.rising;
      if (std::exchange(in_region_[rider.flow], 1) != 0) continue;
      before_[rider.flow] = rate;
      rate_[rider.flow] = kUnsettled;
      changed_.push_back(rider.flow);
      if (region_.size() == links_.size()) continue;
      for (const Place& place : places_[rider.flow]) enter(place.link);
    }
  }
}

void FairShare::fill(double floor) {
  double level = std::isfinite(floor) ? floor : 0;
  const auto settle = [&](std::uint32_t link) {
    const double now = level_of(link);
    if (now > level * (1 + kSame)) level = now;
    settle_riders(links_[link], level);
  };
  if (region_.size() <= kFew) {
    fill_few(settle);
  } else {
    fill_many(settle);
  }
}

/// Looks at all links again after each that is full.
template <class Settle>
void FairShare::fill_few(const Settle& settle) {
  std::array<std::uint32_t, kFew> rising;
  std::size_t count = 0;
  for (const std::uint32_t link : region_) {
    if (links_[link].rising > 0) rising[count++] = link;
  }
  while (count > 0) {
    std::size_t kept = 0, lowest = 0;
    double least = kUnsettled;
    for (std::size_t at = 0; at < count; ++at) {
      const std::uint32_t link = rising[at];
      if (links_[link].rising == 0) continue;
      const double now = level_of(link);
      if (now < least) least = now, lowest = kept;
      rising[kept++] = link;
    }
    count = kept;
    if (count > 0) settle(rising[lowest]);
  }
}

/// Keeps the links in a heap.
template <class Settle>
void FairShare::fill_many(const Settle& settle) {
  levels_.clear();
  for (const std::uint32_t link : region_) {
    if (links_[link].rising > 0) levels_.push_back({level_of(link), link});
  }
  std::ranges::make_heap(levels_, std::greater{});
  while (!levels_.empty()) {
    const auto [known, link] = levels_.front();
    std::ranges::pop_heap(levels_, std::greater{});
    levels_.pop_back();
    if (links_[link].rising == 0) continue;
    if (const double now = level_of(link); now > known * (1 + kSame)) {
      levels_.push_back({now, link});
      std::ranges::push_heap(levels_, std::greater{});
      continue;
    }
    settle(link);
  }
}

void FairShare::settle_riders(Link& link, double level) {
  for (const Rider& rider : link.riders) {
    if (rate_[rider.flow] != kUnsettled) continue;
    // A rate that changed only by rounding is kept, so that nobody needs to be notified of it.
    const double before = before_[rider.flow];
    const bool same = before != kUnsettled && std::abs(level - before) <= before * kSame;
    const double rate = same ? before : level;
    rate_[rider.flow] = rate;
    for (const Place& place : places_[rider.flow]) {
      Link& other = links_[place.link];
      other.left -= place.weight * rate;
      other.weight -= place.weight;
      --other.rising;
    }
  }
}

}  // namespace syntony
