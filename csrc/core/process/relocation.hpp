// How a thread that waits beside its peers on one CPU gets to another one.
//
// The scheduler takes whoever has run within the last half millisecond for hot in its caches and leaves him where he
// is. Ranks that yield to each other have always just run: two stay on one CPU for tens of milliseconds though another
// one is idle, and so do three of four on one of two CPUs. Measured, 256 KiB all_gather: 20 us of two ranks apart,
// 55-80 on one CPU; of four ranks on two CPUs, 49 us two by two, 84 three and one.
//
// Nobody is bound by it: the thread may run afterwards where it might before.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

class Relocation {
 public:
  using Clock = std::chrono::steady_clock;

  /// Whether the calling thread may think of it now: not more often than every millisecond. Where it was brought back
  /// soon, somebody who knows more than ranks know of each other (that others compute there) was at work: then it takes
  /// longer each time.
  [[nodiscard]] bool due();
  /// On which CPUs the calling thread may run, ascending.
  [[nodiscard]] std::span<const std::uint32_t> allowed();
  /// Whoever slept was put where the scheduler saw fit, mostly beside who woke him: that says nothing about others.
  void woken();
  /// To one of those.
  void go(std::uint32_t cpu);

 private:
  static constexpr std::chrono::milliseconds kShortest{1};
  static constexpr std::chrono::milliseconds kLongest{1000};
  static constexpr int kSoon = 16;  // times the pause before it

  Clock::time_point next_ = Clock::time_point::min();
  Clock::time_point last_ = Clock::time_point::min();
  Clock::duration pause_ = kShortest;
  std::vector<std::uint32_t> allowed_;
};

}  // namespace syntony
