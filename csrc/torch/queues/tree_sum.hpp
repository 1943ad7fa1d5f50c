// The pairwise sum: a binary tree over consecutive terms.
//
//     0   1   2   3   4        level 0: a term each
//      \ /     \ /    |        level l: term i is the sum of terms 2i and 2i + 1 of level l - 1, or the first alone
//      01      23     4
//        \    /       |        So the sum of an aligned block is the same whoever forms it, and whichever blocks
//         0123        4        others form: local microbatches, the ranks of a group, one process that has them all.
//            \       /
//             01234
#pragma once

#include <ATen/ATen.h>

#include <cstddef>

namespace syntony::overlap {

/// output = the tree over `count` terms that are consecutive in `terms`, each as large as `output`; both contiguous.
/// Overwrites `terms`.
void tree_sum(const at::Tensor& output, const at::Tensor& terms, std::size_t count);

/// float64 sums of the squares of each 64 elements, as a tree of halves: (0 + 32), (1 + 33), .., then of these. Squares
/// are exact. `elements`: float32, flat, contiguous, a multiple of 64.
[[nodiscard]] at::Tensor square_sums(const at::Tensor& elements);

}  // namespace syntony::overlap
