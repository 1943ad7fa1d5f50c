#include "core/one_host/agreed_way.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

namespace syntony {
namespace {

constexpr std::uint64_t kNoise = 32;       // a difference by this part changes nothing
constexpr std::uint64_t kBeginning = 2;    // calls per way before one is preferred
constexpr std::uint64_t kRarest = 128;     // later, calls from one try to the next
constexpr std::uint64_t kHopeless = 1024;  // and to the next of a way that is twice as slow

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

}  // namespace

bool AgreedWay::tries() const { return calls_ % kRarest == 0 || (calls_ < kRarest && std::has_single_bit(calls_)); }

SharedChoice AgreedWay::next() {
  const std::size_t best = fastest();
  if (calls_ < kBeginning * choices_.size()) {
    if (calls_ > 1) taken_ = following(taken_, heard_[best] + heard_[best] / 4);  // the first call provides memory
  } else if (tries()) {
    taken_ = tried_ = following(tried_, calls_ % kHopeless == 0 ? kUnlimited : 2 * heard_[best]);
  } else {
    if (heard_[best] * kNoise < heard_[current_] * (kNoise - 1)) current_ = best;
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
  const Kind kind{collective, dtype, readable, static_cast<int>(std::bit_width(bytes))};
  auto known = ways_.find(kind);
  if (known == ways_.end()) {
    known = ways_.emplace(kind, AgreedWay(shared_choices(collective, ranks, bytes, readable))).first;
  }
  return known->second.alone() ? nullptr : &known->second;
}

}  // namespace syntony
