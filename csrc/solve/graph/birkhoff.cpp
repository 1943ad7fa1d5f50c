#include "solve/graph/birkhoff.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>
#include <string>

namespace syntony {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 62;
constexpr std::int32_t kNobody = -1;

std::int64_t added(std::int64_t one, std::int64_t other) {
  if (other > kMost - one) throw std::invalid_argument("the matrix sums to more than 2^62");
  return one + other;
}

/// The matrix with the amounts that rows and columns lack to the largest sum, added from the first row and column on.
std::vector<std::int64_t> padded(std::size_t n, std::span<const std::int64_t> matrix) {
  std::vector<std::int64_t> row(n, 0), column(n, 0);
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t c = 0; c < n; ++c) {
      const std::int64_t entry = matrix[r * n + c];
      if (entry < 0) {
        throw std::invalid_argument("entry " + std::to_string(r) + ", " + std::to_string(c) + " is negative");
      }
      row[r] = added(row[r], entry);
      column[c] = added(column[c], entry);
    }
  }
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum = std::max({sum, row[i], column[i]});
  std::vector<std::int64_t> full(matrix.begin(), matrix.end());
  for (std::size_t r = 0, c = 0; r < n && c < n;) {
    const std::int64_t lacking = std::min(sum - row[r], sum - column[c]);
    full[r * n + c] += lacking;
    row[r] += lacking;
    column[c] += lacking;
    if (row[r] == sum) {
      ++r;
    } else {
      ++c;
    }
  }
  return full;
}

/// A perfect matching of rows and columns over entries that reach a threshold, repaired as entries shrink.
class Matching {
 public:
  Matching(std::size_t n, const std::vector<std::int64_t>& entries)
      : n_(n), words_((n + 63) / 64), entries_(entries), wide_(n * words_), to_(n, kNobody), from_(n, kNobody) {}

  /// Admits entries from `threshold` on to the matching.
  void admit(std::int64_t threshold) {
    threshold_ = threshold;
    std::ranges::fill(wide_, 0);
    for (std::size_t r = 0; r < n_; ++r) {
      for (std::size_t c = 0; c < n_; ++c) {
        if (entries_[r * n_ + c] >= threshold) wide_[r * words_ + c / 64] |= std::uint64_t{1} << (c % 64);
      }
    }
  }

  /// Forgets the pair of row r if its entry fell below the threshold.
  void review(std::size_t r) {
    const auto c = static_cast<std::size_t>(to_[r]);
    if (entries_[r * n_ + c] >= threshold_) return;
    wide_[r * words_ + c / 64] &= ~(std::uint64_t{1} << (c % 64));
    to_[r] = from_[c] = kNobody;
  }

  /// True if every row has its column now.
  bool complete() {
    for (std::size_t r = 0; r < n_; ++r) {
      if (to_[r] != kNobody) continue;
      unseen_.assign(words_, ~std::uint64_t{0});
      if (!augment(r)) return false;
    }
    return true;
  }

  [[nodiscard]] const std::vector<std::int32_t>& to() const { return to_; }

 private:
  bool augment(std::size_t r) {
    const std::uint64_t* const row = &wide_[r * words_];
    for (std::size_t word = 0; word < words_; ++word) {  // a free column, if there is one
      for (std::uint64_t left = row[word] & unseen_[word]; left != 0; left &= left - 1) {
        const std::size_t c = word * 64 + static_cast<std::size_t>(std::countr_zero(left));
        if (from_[c] == kNobody) return pair(r, c);
      }
    }
    for (std::size_t word = 0; word < words_; ++word) {
      while (const std::uint64_t left = row[word] & unseen_[word]) {
        const std::size_t c = word * 64 + static_cast<std::size_t>(std::countr_zero(left));
        unseen_[word] &= ~(left & -left);
        if (augment(static_cast<std::size_t>(from_[c]))) return pair(r, c);
      }
    }
    return false;
  }

  bool pair(std::size_t r, std::size_t c) {
    to_[r] = static_cast<std::int32_t>(c);
    from_[c] = static_cast<std::int32_t>(r);
    return true;
  }

  std::size_t n_, words_;
  const std::vector<std::int64_t>& entries_;
  std::int64_t threshold_ = 0;
  std::vector<std::uint64_t> wide_;    // per row, one bit per column whose entry reaches the threshold
  std::vector<std::uint64_t> unseen_;  // columns not yet visited by the search
  std::vector<std::int32_t> to_, from_;
};

}  // namespace

Permutations birkhoff(std::size_t n, std::span<const std::int64_t> matrix) {
  if (matrix.size() != n * n) {
    throw std::invalid_argument(std::to_string(matrix.size()) + " entries are no " + std::to_string(n) + " x " +
                                std::to_string(n) + " matrix");
  }
  std::vector<std::int64_t> left = padded(n, matrix);
  std::int64_t rest = 0;
  for (std::size_t c = 0; c < n; ++c) rest += left[c];
  Permutations found;
  if (rest == 0) return found;
  Matching matching(n, left);
  auto threshold = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(rest)));
  matching.admit(threshold);
  while (rest > 0) {
    while (!matching.complete()) matching.admit(threshold /= 2);  // at threshold 1 one exists: equal sums (Hall)
    std::int64_t length = std::numeric_limits<std::int64_t>::max();
    for (std::size_t r = 0; r < n; ++r)
      length = std::min(length, left[r * n + static_cast<std::size_t>(matching.to()[r])]);
    found.length.push_back(length);
    found.to.insert(found.to.end(), matching.to().begin(), matching.to().end());
    for (std::size_t r = 0; r < n; ++r) {
      left[r * n + static_cast<std::size_t>(matching.to()[r])] -= length;
      matching.review(r);
    }
    rest -= length;
  }
  return found;
}

}  // namespace syntony
