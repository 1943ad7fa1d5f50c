// How long the progress engine's thread leaves undriven work to a caller, who often waits for it immediately:
//
//      submit ──► wait            a caller drives; the thread sleeps on
//      submit ──── grace ───►     nobody has come: the thread drives
//
// Waking the thread and taking the role back from it costs a caller about ten times as long as a small operation.
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
  /// Readable when the thread should look.
  [[nodiscard]] const UniqueFd& timer() const { return timer_; }

  // Any thread:

  /// Something is in flight that nobody drives. The thread will look, unless this returns false: there was no timer.
  [[nodiscard]] bool begin();
  /// Somebody drives everything that is in flight.
  void driven() {
    if (since_.load(std::memory_order_relaxed) != 0) since_.store(0, std::memory_order_relaxed);
  }

  // The thread:

  /// Called before the thread looks whether anything is in flight.
  void looks();
  /// Nobody drives, and something is in flight: true if the thread should do it. If not, begin() again.
  [[nodiscard]] bool over();
  /// The thread looked in vain and will look later next time.
  void in_vain() { patience_ = std::min(2 * patience_.load(), kLongest); }

 private:
  static constexpr std::chrono::microseconds kShortest{50};
  static constexpr std::chrono::microseconds kLongest{200};

  UniqueFd timer_;
  std::atomic<Clock::rep> since_{0};  // since when nobody drives, 0: somebody does; a hint
  std::atomic<bool> set_{false};      // whether the timer is set
  std::atomic<std::chrono::microseconds> patience_{kShortest};
};

}  // namespace syntony
