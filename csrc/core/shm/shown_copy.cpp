#include "core/shm/shown_copy.hpp"

#include <algorithm>
#include <bit>
#include <chrono>

#include "core/kernels/vector_copy.hpp"

namespace syntony {

void ShownCopy::operator()(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes < kShortest) return vector_copy(to, from, bytes);
  using Clock = std::chrono::steady_clock;
  const auto power = static_cast<std::size_t>(std::bit_width(bytes / kShortest) - 1);
  FasterWay& ways = ways_[std::min(power, kSizes - 1)];
  const FasterWay::Turn turn = ways.next();
  const auto copy = turn.way == FasterWay::Way::second ? streaming_copy : vector_copy;
  if (!turn.timed) return copy(to, from, bytes);
  const Clock::time_point begin = Clock::now();
  copy(to, from, bytes);
  const std::chrono::duration<double> spent = Clock::now() - begin;
  ways.took(turn, spent.count() / static_cast<double>(bytes));
}

}  // namespace syntony
