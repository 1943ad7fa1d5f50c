// How a thread that shares its CPU with awake peers moves to another one.
//
// The scheduler considers a thread that ran within the last half millisecond cache-hot and does not migrate it. Ranks
// that yield to each other have always just run: two can stay on one CPU for tens of milliseconds though another is
// idle, and so can three of four on one of two CPUs. Measured, 256 KiB all_gather: 20 us with two ranks on separate
// CPUs, 55-80 on one; four ranks on two CPUs, 49 us two by two, 84 three and one.
//
// The move is not binding: the affinity of the thread is the same afterwards.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

class Relocation {
 public:
  using Clock = std::chrono::steady_clock;

  /// True if the calling thread may consider moving now: at most once per millisecond. If it was soon moved back, the
  /// scheduler knew of other load that ranks cannot see on each other, so the next attempt waits longer each time.
  [[nodiscard]] bool due();
  /// The CPUs on which the calling thread may run, ascending.
  [[nodiscard]] std::span<const std::uint32_t> allowed();
  /// Call after a sleep: the scheduler placed the thread, usually beside its waker, which says nothing about other
  /// load.
  void woken();
  /// Moves to one of the allowed CPUs.
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
