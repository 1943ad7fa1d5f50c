#include "core/one_host/agreed_way.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <utility>

#include "core/sizes.hpp"

namespace syntony {
namespace {

constexpr std::uint64_t kNoise = 32;  // a difference by this part changes nothing
// Calls per way before one is preferred: of any, and of short ones. The first two calls take the usual way, for
// the very first provides memory.
constexpr std::uint64_t kCalls = 2, kCallsOfShort = 8;
constexpr std::size_t kShort = 2_MiB;
// Calls from one try of another way to the next: of one that is nearly as fast, of one that is not, and of any.
constexpr std::uint64_t kOften = 16, kSeldom = 128, kRarely = 1024;
// At least so many calls from one review to the next.
constexpr std::uint64_t kReview = 64;

}  // namespace

AgreedWay::AgreedWay(std::vector<SharedChoice> choices, std::size_t bytes)
    : choices_(std::move(choices)), beginning_((bytes <= kShort ? kCallsOfShort : kCalls) * choices_.size()) {}

AgreedWay::Try AgreedWay::tries(std::uint64_t least) const {
  constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t near = least + least / 4;
  if (calls_ < beginning_) return {calls_ < 2 ? 0 : calls_ < beginning_ / 2 ? kAny : near, calls_};
  if (reviewing()) return {kAny, calls_};
  for (const auto& [every, most] : {std::pair{kRarely, kAny}, {kSeldom, 2 * least}, {kOften, near}}) {
    if (calls_ % every == 0) return {most, calls_ / every};
  }
  return {};
}

bool AgreedWay::reviewing() const { return reviewed_ != 0 && calls_ < reviewed_ + choices_.size(); }

bool AgreedWay::changed() const {
  const std::uint64_t now = heard_[current_];
  return settled_ != 0 && (now * 8 < settled_ * 7 || now * 8 > settled_ * 9);
}

void AgreedWay::review() {
  for (std::size_t choice = 0; choice < choices_.size(); ++choice) {
    if (choice != current_) costs_[choice] = 0, heard_[choice] = 0;
  }
  reviewed_ = calls_;
  settled_ = 0;
}

SharedChoice AgreedWay::next() {
  if (calls_ >= reviewed_ + kReview && changed()) review();
  const std::size_t best = fastest();
  if (const Try now = tries(heard_[best]); now.most > 0) {
    taken_ = following(now.turn % choices_.size(), now.most);
  } else {
    if (heard_[best] * kNoise < heard_[current_] * (kNoise - 1)) {
      current_ = best;
      settled_ = 0;
    }
    // What a call costs is heard two calls later.
    if (settled_ == 0 && calls_ >= reviewed_ + choices_.size() + 2) settled_ = heard_[current_];
    taken_ = current_;
  }
  ++calls_;
  return choices_[taken_];
}

std::size_t AgreedWay::following(std::size_t choice, std::uint64_t most) const {
  do {
    choice = (choice + 1) % choices_.size();
  } while (heard_[choice] > most);
  return choice;
}

std::size_t AgreedWay::fastest() const {
  std::size_t best = current_;
  for (std::size_t choice = 0; choice < choices_.size(); ++choice) {
    if (heard_[choice] != 0 && (heard_[best] == 0 || heard_[choice] < heard_[best])) best = choice;
  }
  return best;
}

void AgreedWay::took(std::chrono::nanoseconds time, std::size_t bytes) {
  constexpr std::uint64_t kUnit = 1 << 16;  // of a nanosecond per byte
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  const auto each = static_cast<std::uint32_t>(
      std::clamp(static_cast<std::uint64_t>(time.count()) * kUnit / bytes, std::uint64_t{1}, kMost));
  std::uint32_t& cost = costs_[taken_];
  // Many things make a call late, and nothing early.
  cost = cost == 0 ? each : std::min(each, cost + cost / 16 + 1);
}

void AgreedWay::hear(const StageBuffer::Costs& of_rank) {
  for (std::size_t choice = 0; choice < choices_.size(); ++choice) heard_[choice] += of_rank[choice];
}

AgreedWay* AgreedWays::of(Collective collective, DType dtype, std::uint32_t ranks, std::size_t bytes, bool readable) {
  if (!has_choices(collective, bytes)) return nullptr;
  const Kind kind{collective, dtype, readable, static_cast<int>(std::bit_width(bytes))};
  auto known = ways_.find(kind);
  if (known == ways_.end()) {
    known = ways_.emplace(kind, AgreedWay(shared_choices(collective, ranks, bytes, readable), ranks * bytes)).first;
  }
  return known->second.alone() ? nullptr : &known->second;
}

}  // namespace syntony
