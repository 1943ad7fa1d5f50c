// Birkhoff's decomposition: a matrix of bytes as a sequence of permutations.
//
//     to    A   B   C                       5 units      3 units      2 units      10 in all: the largest
//     A   [ .   8   2 ]   padded to         A ─▶ B       A ─▶ B       A ─▶ C       sum of a row or column
//     B   [ 5   .   5 ]   equal sums   ──▶  B ─▶ C       B ─▶ A       B ─▶ A
//     C   [ 4   1   . ]                     C ─▶ A       C: rests     C ─▶ B       (not the only one)
//
// In every stage each row sends to one column and each column receives from one row: nothing ever waits for a port, and
// the largest row or column is always busy (Birkhoff 1946, von Neumann 1953). Stages are chosen greedily, the longest
// first: a matching whose entries all reach a threshold, which is halved if there is none (as in Liu et al., Solstice,
// CoNEXT'15).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

/// Stage s lasts `length[s]`; in it row r sends to column `to[s * n + r]`, at most what remains of their entry.
struct Permutations {
  std::vector<std::int64_t> length;
  std::vector<std::int32_t> to;
};

/// Decomposes the n x n matrix (row by row, not negative) into permutations whose lengths sum to its largest row or
/// column sum. Throws std::invalid_argument for a matrix of another size, a negative entry, or sums beyond 2^62.
[[nodiscard]] Permutations birkhoff(std::size_t n, std::span<const std::int64_t> matrix);

}  // namespace syntony
