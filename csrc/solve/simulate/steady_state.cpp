#include "solve/simulate/steady_state.hpp"

#include <algorithm>

namespace syntony {
namespace {

/// Mixes all bits of a number (SplitMix64: Steele, Lea and Flood, OOPSLA 2014).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

std::uint64_t digest(std::span<const std::int64_t> state, std::uint64_t seed) {
  std::uint64_t sum = mixed(seed + state.size());
  for (const std::int64_t number : state) {
    sum = mixed(sum + 0x9e3779b97f4a7c15U + mixed(static_cast<std::uint64_t>(number) ^ seed));
  }
  return sum;
}

}  // namespace

std::optional<SteadyState::Skip> SteadyState::skip(std::span<const std::int64_t> state, std::int64_t base,
                                                   std::int64_t lowest, std::int64_t highest, double now) {
  const auto next = std::ranges::upper_bound(boundaries_, lowest);
  if (next == boundaries_.end() || highest >= *next) return {};
  const auto phase = static_cast<std::size_t>(next - boundaries_.begin()) + 1;
  if (phase != phase_) {
    phase_ = phase;
    seen_.clear();
  }
  // 128 bits, because a simulation without a steady state remembers one state per slice.
  const auto [before, fresh] = seen_.try_emplace({digest(state, 1), digest(state, 2)}, Seen{base, now});
  if (fresh) return {};
  const std::int64_t period = base - before->second.base;
  const std::int64_t periods = (*next - 1 - highest) / period;
  if (periods < 1) return {};
  const double seconds = static_cast<double>(periods) * (now - before->second.time);
  seen_.clear();
  return Skip{periods * period, seconds};
}

}  // namespace syntony
