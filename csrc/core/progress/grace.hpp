// How long the progress engine's thread leaves what nobody drives to a caller, who often waits for it at once:
//
//      submit ──► wait            a caller drives; the thread sleeps on
//      submit ──── grace ───►     nobody has come: the thread drives
//
// To wake the thread, and to get the role back from it, takes a caller some ten times as long as a small operation.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "core/process/unique_fd.hpp"

namespace syntony {

class Grace {
 public:
  using Clock = std::chrono::steady_clock;

  Grace();
  /// Readable when the thread shall look.
  [[nodiscard]] const UniqueFd& timer() const { return timer_; }

  // Any thread:

  /// Something is in flight that nobody drives. The thread will look, unless this returns false: there was no timer.
  [[nodiscard]] bool begin();
  /// Somebody drives everything that is in flight.
  void driven() {
    if (since_.load(std::memory_order_relaxed) != 0) since_.store(0, std::memory_order_relaxed);
  }

  // The thread:

  /// Before it looks whether anything is in flight.
  void looks();
  /// Nobody drives, and something is in flight: is it for the thread to do? If not, begin() again.
  [[nodiscard]] bool over();
  /// It looked in vain: next time it comes later.
  void in_vain() { patience_ = std::min(2 * patience_.load(), kLongest); }

 private:
  static constexpr std::chrono::microseconds kShortest{50};
  static constexpr std::chrono::microseconds kLongest{200};

  UniqueFd timer_;
  std::atomic<Clock::rep> since_{0};  // nobody drives, 0: somebody does; a hint
  std::atomic<bool> set_{false};      // the timer
  std::atomic<std::chrono::microseconds> patience_{kShortest};
};

}  // namespace syntony
