#include "core/one_host/agreed_way.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <utility>

#include "core/sizes.hpp"

namespace syntony {
namespace {

// Another way is taken only if it costs less by more than this part, 1 / kNoise, of the present one's cost, as
// measured.
constexpr std::uint64_t kNoise = 32;
// By more than 1 / kChance as long as it was taken by fewer than kSure calls.
constexpr std::uint64_t kChance = 8, kSure = 8;
// Calls per way before one is preferred, one after another; those of a way that looks hopeful, slower by at most 1 /
// kHopeful. The first ones find the caches as another way has left them (all_gather of 8 MiB from the peers' buffers,
// us, after calls through copies: 645, 673, 450, 431, 419).
constexpr std::uint64_t kCalls = 2, kCallsOfHopeful = 4, kHopeful = 2;
constexpr std::uint64_t kNear = 4;  // what is slower by less than this part is nearly as fast
// Calls that take the usual way at first: the very first provides memory, and the next ones find out how to show what
// peers read (core/shm/shown_copy.hpp).
constexpr std::uint64_t kUsual = 4;
// Calls from one try of another way to the next: of one that is nearly as fast, of one that is not, and of any.
constexpr std::uint64_t kOften = 16, kSeldom = 128, kRarely = 1024;
// At least so many calls from one review to the next.
constexpr std::uint64_t kReview = 64;
// Blocks of fewer bytes fit a core's own cache, from which a peer reads them only twice as fast as a copy, or slower,
// depending on who has written them when. As these calls are short and their costs vary, it must pay off clearly: 1 /
// kDoubtOfShort.
constexpr std::size_t kLong = 1_MiB;
constexpr std::uint64_t kDoubtOfShort = 4;
// Times as long as a call: who does something else for longer has other data in the caches by then.
constexpr int kRest = 4;

constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();

/// Per byte, in units that all ranks share.
std::uint32_t each(std::chrono::nanoseconds time, std::size_t bytes) {
  constexpr std::uint64_t kUnit = 1 << 16;  // of a nanosecond per byte
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max() / 2;
  return static_cast<std::uint32_t>(
      std::clamp(static_cast<std::uint64_t>(time.count()) * kUnit / bytes, std::uint64_t{1}, kMost));
}

/// Many things make a call late, and nothing early. What is called often must not seem slow because some calls are
/// late.
void note(std::uint32_t& cost, std::uint32_t now) { cost = cost == 0 ? now : std::min(now, cost + cost / 48 + 1); }

}  // namespace

AgreedWay::AgreedWay(std::vector<SharedChoice> choices, std::uint64_t doubt)
    : choices_(std::move(choices)), tries_(choices_.size()), doubt_(doubt) {}

std::optional<std::size_t> AgreedWay::untried() const {
  if (calls_ < kUsual) return 0;
  const std::uint64_t least = heard_[fastest()];
  for (std::size_t i = 1; i <= choices_.size(); ++i) {
    const std::size_t choice = i % choices_.size();  // the usual one last: its first calls were no fair try
    const bool hopeful = heard_[choice] <= least + least / kHopeful;
    if (tries_[choice] < (hopeful ? kCallsOfHopeful : kCalls)) return choice;
  }
  return std::nullopt;
}

std::size_t AgreedWay::tried_again(std::uint64_t least) const {
  for (const auto& [every, most] : {std::pair{kRarely, kAny}, {kSeldom, 2 * least}, {kOften, least + least / kNear}}) {
    if (calls_ % every != 0) continue;
    std::size_t choice = calls_ / every % choices_.size();
    while (heard_[choice] > most) choice = (choice + 1) % choices_.size();
    return choice;
  }
  return current_;
}

bool AgreedWay::changed() const {
  const std::uint64_t now = heard_[current_];
  return settled_ != 0 && (now * 8 < settled_ * 7 || now * 8 > settled_ * 9);
}

void AgreedWay::review() {
  for (std::size_t choice = 0; choice < choices_.size(); ++choice) {
    if (choice == current_) continue;
    of_calls_[choice] = of_periods_[choice] = costs_[choice] = 0;
    heard_[choice] = tries_[choice] = 0;
  }
  reviewed_ = calls_;
  settled_ = 0;
}

SharedChoice AgreedWay::next() {
  if (calls_ >= reviewed_ + kReview && changed()) review();
  const std::size_t best = fastest();
  if (const auto choice = untried()) {
    taken_ = *choice;
  } else {
    const std::uint64_t known = tries_[best] < kSure ? kChance : kNoise;
    const std::uint64_t part = best == 0 ? known : std::min(known, doubt_);
    if (current_ != best && heard_[best] * part < heard_[current_] * (part - 1)) {
      current_ = best;
      settled_ = 0;
    }
    if (settled_ == 0) settled_ = heard_[current_];
    taken_ = tried_again(heard_[current_]);
  }
  if (++calls_ > kUsual) ++tries_[taken_];
  return choices_[taken_];
}

std::size_t AgreedWay::fastest() const {
  std::size_t best = current_;
  for (std::size_t choice = 0; choice < choices_.size(); ++choice) {
    if (heard_[choice] != 0 && (heard_[best] == 0 || heard_[choice] < heard_[best])) best = choice;
  }
  return best;
}

void AgreedWay::took(std::chrono::nanoseconds time, std::size_t bytes) {
  note(of_calls_[taken_], each(time, bytes));
  ended_ = {taken_, time, bytes};
  add_up();
}

void AgreedWay::resumed(std::chrono::nanoseconds later) {
  if (later > kRest * ended_.time) return;
  note(of_periods_[ended_.choice], each(ended_.time + later, ended_.bytes));
  add_up();
}

void AgreedWay::add_up() {
  std::uint32_t least = 0;  // between two calls, as far as known
  for (std::size_t choice = 0; choice < choices_.size(); ++choice) {
    if (of_periods_[choice] == 0) continue;
    const std::uint32_t rest = of_periods_[choice] - std::min(of_calls_[choice], of_periods_[choice]);
    least = least == 0 ? rest : std::min(least, rest);
  }
  for (std::size_t choice = 0; choice < choices_.size(); ++choice) {
    const std::uint32_t period = of_periods_[choice] != 0 ? of_periods_[choice] : of_calls_[choice] + least;
    costs_[choice] = of_calls_[choice] == 0 ? 0 : period;
  }
}

void AgreedWay::hear(const StageBuffer::Costs& of_rank) {
  for (std::size_t choice = 0; choice < choices_.size(); ++choice) heard_[choice] += of_rank[choice];
}

AgreedWay* AgreedWays::of(Collective collective, DType dtype, std::uint32_t ranks, std::size_t bytes, bool readable) {
  if (!has_choices(collective, bytes)) return nullptr;
  const Kind kind{collective, dtype, readable, static_cast<int>(std::bit_width(bytes))};
  auto known = ways_.find(kind);
  if (known == ways_.end()) {
    AgreedWay way(shared_choices(collective, ranks, bytes, readable), bytes < kLong ? kDoubtOfShort : AgreedWay::kNone);
    known = ways_.emplace(kind, std::move(way)).first;
  }
  return known->second.alone() ? nullptr : &known->second;
}

void AgreedWays::begins(Clock::time_point met) {
  if (last_ != nullptr) last_->resumed(met - ended_);
}

void AgreedWays::ends(AgreedWay& way, std::chrono::nanoseconds time, std::size_t bytes, Clock::time_point now) {
  way.took(time, bytes);
  last_ = &way;
  ended_ = now;
}

}  // namespace syntony
