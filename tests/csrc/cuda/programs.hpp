// Programs that no builder would write.
#pragma once

#include <cstdint>
#include <random>

#include "core/program/program.hpp"

namespace syntony::cuda {

using Random = std::mt19937_64;

/// A random number in 0 .. n - 1.
inline std::uint32_t below(Random& random, std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); }

/// Moves and sums of any defined values, between any places.
[[nodiscard]] Program random_program(Random& random, std::uint32_t ranks);

/// all_reduce round random rings with the fused instructions, in messages of several slots, plus a ring of signals.
[[nodiscard]] Program fused_rings(Random& random, std::uint32_t ranks);

}  // namespace syntony::cuda
