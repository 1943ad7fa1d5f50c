// Direct exchange through peer memory: ranks that need data read it from where it is.
//
//     rank 0's input ──┐                         One hop and no message: bytes are read in place and written to their
//     rank 1's input ──┼─ + ──> rank 2's output  destination, so a large buffer crosses memory as often as necessary
//     rank 2's input ──┘                         and no more. Sums are n-ary, in rank order, rounded once.
//
// `pull` reads the table of collectives this way; all_reduce is one shot: every rank reads and sums everything.
// `pull_two_shot`: rank c sums share c and writes the sum into every rank's output. In both, a sum has the same
// operands in the same order wherever it is computed, so results are bitwise equal on all ranks.
//
// The lowering turns the reads of a sum, the sum, and the writes of its result into one instruction (movements.hpp).
#pragma once

#include <cstdint>

#include "core/program/program.hpp"

namespace syntony::cuda {

/// Throws std::invalid_argument if ranks or root do not fit the collective.
[[nodiscard]] Program pull(Collective collective, std::uint32_t ranks, std::uint32_t root = 0);
/// all_reduce; also correct in place, unlike the one shot.
[[nodiscard]] Program pull_two_shot(std::uint32_t ranks);

}  // namespace syntony::cuda
