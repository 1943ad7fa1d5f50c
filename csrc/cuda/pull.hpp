// Direct exchange through peer memory: who must end with something fetches it where it is.
//
//      rank 0's input ──┐                         One hop and no message: bytes are read where they lie and written
//      rank 1's input ──┼─ + ──> rank 2's output  where they are wanted, so a large buffer crosses memory as often as
//      rank 2's input ──┘                         it must and no more. Sums are n-ary, in rank order, rounded once.
//
// `pull` is the table of collectives read in this way; for all_reduce, one shot: every rank reads and sums everything.
// `pull_two_shot`: rank c sums share c and writes the sum into everybody's output. Either way a sum is made of the same
// operands in the same order wherever it is made: bitwise equal at all ranks.
//
// The lowering turns the reads of a sum, the sum, and the writes of it into one instruction (movements.hpp).
#pragma once

#include <cstdint>

#include "core/program/program.hpp"

namespace syntony::cuda {

/// Throws std::invalid_argument when ranks or root do not fit the collective.
[[nodiscard]] Program pull(Collective collective, std::uint32_t ranks, std::uint32_t root = 0);
/// all_reduce; right in place too, which the one shot is not.
[[nodiscard]] Program pull_two_shot(std::uint32_t ranks);

}  // namespace syntony::cuda
