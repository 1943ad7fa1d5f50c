// A plan of an all_to_all_v among boxes: which bytes go over which NIC in which stage.
//
//        box A                                   box B
//     rank 0 ─┐ balanced: every rank          ┌─ rank 4        a piece: bytes of one block (rank to rank), on one NIC,
//     rank 1 ─┼─ of the box sends as much ══▶ ┼─ rank 5        in one stage:  from ─▶ out ══▶ in ─▶ to
//     rank 2 ─┘ to B, rank i to rank i        └─ rank 6
//
// Stages are the permutations of the boxes (birkhoff.hpp), long ones in parts. Ranks are numbered box by box, the same
// number in each. After Lei et al., FAST (arXiv 2505.09764), sections 4 and 5.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

/// Columns, one row per piece: bytes offset .. offset + bytes of the block of `from` for `to` (both ranks) go through
/// `out` and `in`. Within a box the stage is -1, and out and in are the two ranks themselves. Empty blocks have no
/// pieces. `length[s]` is the length of stage s in bytes of a box.
struct ExchangePlan {
  std::vector<std::int64_t> length;
  std::vector<std::int32_t> stage, from, out, in, to;
  std::vector<std::int64_t> offset, bytes;
};

/// The plan for a matrix of bytes, row by row: from each rank to each. Throws std::invalid_argument for a matrix of
/// another size, and like birkhoff().
[[nodiscard]] ExchangePlan plan_exchange(std::size_t boxes, std::size_t per_box, std::span<const std::int64_t> matrix);

}  // namespace syntony
