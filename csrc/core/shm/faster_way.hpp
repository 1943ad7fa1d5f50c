// Which of two ways to do the same thing is faster, found out by using both.
//
// Now and then both are timed, one after the other; in between, the one that was faster is used. As long as the answer
// stays the same, it is asked for less and less often, so trying the slower one costs little. It is asked for again
// eagerly once it changes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace syntony {

class FasterWay {
 public:
  enum class Way : bool { first, second };
  struct Turn {
    Way way;
    bool timed;  // took() must be told how long it took
  };

  /// The second way must be `advantage` times as fast to be preferred.
  explicit constexpr FasterWay(double advantage = 1) : advantage_(advantage) {}

  /// What to do now.
  [[nodiscard]] Turn next() {
    if (rest_ == 0) return {tried_, true};
    return {preferred_, --rest_ % kCheck == 0};
  }

  /// The cost of `turn`, timed, in any unit. Call it before the next next().
  void took(const Turn& turn, double cost) {
    double& known = costs_[static_cast<std::size_t>(turn.way)];
    if (checks_) {
      if (cost > kMuch * known) rest_ = 0, pairs_ = kBeginning;
      checks_ = rest_ > 0;
      return;
    }
    // A thread that was interrupted meanwhile took longer than the work did: no sample counts fully.
    known = known == 0 ? cost : known + (std::clamp(cost, known / kTrusted, known * kTrusted) - known) / 2;
    // The next pair begins with the way that this one ends with: neither way always meets the same memory.
    halved_ = !halved_;
    if (!halved_) return decide();
    tried_ = tried_ == Way::first ? Way::second : Way::first;
  }

  [[nodiscard]] Way preferred() const { return preferred_; }

 private:
  static constexpr double kTrusted = 4;
  static constexpr double kMuch = 2;
  static constexpr std::size_t kCheck = 17;     // turns between two looks at the way in use
  static constexpr unsigned kBeginning = 8;     // pairs that follow each other at first: memory may be new then
  static constexpr std::size_t kLongest = 511;  // turns between two pairs

  void decide() {
    const Way faster = costs_[1] * advantage_ < costs_[0] ? Way::second : Way::first;
    if (faster != preferred_ && pairs_ > kBeginning) pairs_ = kBeginning;
    preferred_ = faster;
    if (++pairs_ > kBeginning) rest_ = std::min(kLongest, (std::size_t{1} << std::min(pairs_ - kBeginning, 16U)) + 1);
    checks_ = rest_ > 0;
  }

  double advantage_;
  std::array<double, 2> costs_{};  // smoothed, by way
  Way preferred_ = Way::first;
  Way tried_ = Way::first;  // in the next timed turn
  bool halved_ = false;     // one of a pair has been tried
  unsigned pairs_ = 0;      // of timed turns, since the beginning or the last change
  std::size_t rest_ = 0;    // turns until the next pair
  bool checks_ = false;     // timed turns are looks at the way in use, not tries of both
};

}  // namespace syntony
