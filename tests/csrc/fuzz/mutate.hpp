// Makes inputs from seeds by a few changes each, of the kinds that break parsers.
#pragma once

#include <cstdint>
#include <random>

#include "fuzz/target.hpp"

namespace syntony::fuzz {

/// Equal `random` give equal inputs. At most `longest` bytes.
[[nodiscard]] Bytes mutated(std::span<const Bytes> seeds, std::mt19937_64& random, std::size_t longest);

}  // namespace syntony::fuzz
