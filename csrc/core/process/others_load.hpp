// Whether other programs compute on a thread's CPU, as it finds out by yielding.
//
// A yield takes microseconds among ranks that wait for each other, and long if somebody computes. If that is another
// program, sleeping returns sooner, because a wakeup preempts it. But it may be a peer that has a large part to copy,
// and then sleeping costs: a wakeup for every part, and the scheduler places the woken rank where it likes. The next
// yields tell which it was: a program that computes will go on. So after one long yield others are believed to compute
// for a moment only, and for twice as long each time that this is confirmed soon after it has passed:
//
//      yields     || long |            | long |                | long |                                 |||||||||
//      believed           |-- 1 ms ----|      |---- 2 ms ------|      |-------- 4 ms -------- .. 20 ms -|
//
// (4 ranks on 2 cores, all_gather of 16 MiB, whose ranks copy for milliseconds: 3,000 to 3,500 us if every long yield
// is believed for 20 ms, and 2,050 to 2,200 so. Beside one and two programs that compute on these cores: the same.)
#pragma once

#include <algorithm>
#include <chrono>

namespace syntony {

class OthersLoad {
 public:
  using Clock = std::chrono::steady_clock;

  /// False if that was as short as among ranks that only wait.
  bool yielded(Clock::time_point begin, Clock::time_point end) {
    if (end - begin <= kLongestYield) return false;
    const bool confirmed = until_ != kNever && begin - until_ < respect_;
    respect_ = confirmed ? std::min(respect_ * 2, kLongest) : kShortest;
    until_ = end + respect_;
    return true;
  }
  [[nodiscard]] bool lasts() const { return until_ != kNever && lasts(Clock::now()); }
  [[nodiscard]] bool lasts(Clock::time_point now) const { return now < until_; }

 private:
  static constexpr std::chrono::milliseconds kLongestYield{1}, kShortest{1}, kLongest{20};
  static constexpr Clock::time_point kNever = Clock::time_point::min();

  Clock::time_point until_ = kNever;
  std::chrono::milliseconds respect_ = kShortest;
};

}  // namespace syntony
