// Which of two ways to move bytes is faster, by their number (faster_way.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>

#include "core/shm/faster_way.hpp"

namespace syntony {

class FasterBySize {
 public:
  /// `advantage`: how many times as fast the second way must be. Fewer than `shortest` bytes go the first way.
  FasterBySize(double advantage, std::size_t shortest) : shortest_(shortest) { ways_.fill(FasterWay(advantage)); }

  /// Calls `move(way)` for `bytes` bytes, and times it now and then.
  template <typename Move>
  void operator()(std::size_t bytes, const Move& move) {
    if (bytes < shortest_) return move(FasterWay::Way::first);
    using Clock = std::chrono::steady_clock;
    const auto power = static_cast<std::size_t>(std::bit_width(bytes / shortest_) - 1);
    FasterWay& ways = ways_[std::min(power, kSizes - 1)];
    const FasterWay::Turn turn = ways.next();
    if (!turn.timed) return move(turn.way);
    const Clock::time_point begin = Clock::now();
    move(turn.way);
    const std::chrono::duration<double> spent = Clock::now() - begin;
    ways.took(turn, spent.count() / static_cast<double>(bytes));
  }

 private:
  static constexpr std::size_t kSizes = 9;  // powers of two

  std::size_t shortest_;
  std::array<FasterWay, kSizes> ways_;
};

}  // namespace syntony
