// A set of ranks of one group: one bit each, so that a set of thousands takes some hundred bytes, in memory and on the
// wire.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

class RankSet {
 public:
  explicit RankSet(std::uint32_t ranks) : words_((std::size_t{ranks} + kBits - 1) / kBits) {}

  void insert(std::uint32_t rank) { words_[rank / kBits] |= bit(rank); }
  void erase(std::uint32_t rank) { words_[rank / kBits] &= ~bit(rank); }
  void clear() { words_.assign(words_.size(), 0); }
  [[nodiscard]] bool contains(std::uint32_t rank) const { return (words_[rank / kBits] & bit(rank)) != 0; }
  [[nodiscard]] bool empty() const {
    for (const std::uint64_t word : words_) {
      if (word != 0) return false;
    }
    return true;
  }
  /// In ascending order.
  template <typename Visit>
  void each(const Visit& visit) const {
    for (std::size_t place = 0; place < words_.size(); ++place) {
      for (std::uint64_t rest = words_[place]; rest != 0; rest &= rest - 1) {
        visit(static_cast<std::uint32_t>(place * kBits) + static_cast<std::uint32_t>(std::countr_zero(rest)));
      }
    }
  }
  [[nodiscard]] std::span<const std::uint64_t> words() const { return words_; }
  [[nodiscard]] std::span<std::uint64_t> words() { return words_; }

 private:
  static constexpr std::uint32_t kBits = 64;
  [[nodiscard]] static std::uint64_t bit(std::uint32_t rank) { return std::uint64_t{1} << rank % kBits; }

  std::vector<std::uint64_t> words_;
};

}  // namespace syntony
