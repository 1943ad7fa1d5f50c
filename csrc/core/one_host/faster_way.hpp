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
    bool timed;  // took() is to be told how long it took
  };

  /// The second way must be `advantage` times as fast to be preferred.
  explicit constexpr FasterWay(double advantage = 1) : advantage_(advantage) {}

  /// What to do now.
  [[nodiscard]] Turn next() {
    if (rest_ == 0) return {tried_, true};
    --rest_;
    return {preferred_, false};
  }

  /// The cost of the timed turn that next() returned last, in any unit.
  void took(double cost) {
    double& known = costs_[static_cast<std::size_t>(tried_)];
    // A thread that was interrupted meanwhile took longer than the work did: no sample counts fully.
    known = known == 0 ? cost : known + (std::clamp(cost, known / kTrusted, known * kTrusted) - known) / 2;
    tried_ = tried_ == Way::first ? Way::second : Way::first;
    if (tried_ == Way::first) decide();
  }

  [[nodiscard]] Way preferred() const { return preferred_; }

 private:
  static constexpr double kTrusted = 4;
  static constexpr unsigned kBeginning = 8;     // pairs that follow each other at first: memory may be new then
  static constexpr std::size_t kLongest = 512;  // turns between two pairs

  void decide() {
    const Way faster = costs_[1] * advantage_ < costs_[0] ? Way::second : Way::first;
    if (faster != preferred_ && pairs_ > kBeginning) pairs_ = kBeginning;
    preferred_ = faster;
    if (++pairs_ > kBeginning) rest_ = std::min(kLongest, std::size_t{1} << std::min(pairs_ - kBeginning, 16U));
  }

  double advantage_;
  std::array<double, 2> costs_{};  // smoothed, by way
  Way preferred_ = Way::first;
  Way tried_ = Way::first;  // in the next timed turn
  unsigned pairs_ = 0;      // of timed turns, since the beginning or the last change
  std::size_t rest_ = 0;    // turns until the next pair
};

}  // namespace syntony
