#include "fuzz/mutate.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace syntony::fuzz {
namespace {

/// Lengths and numbers at which arithmetic overflows.
constexpr std::array<std::uint64_t, 16> kEdges{0,          1,          2,           4,       0x7f,       0x80,
                                               0xff,       0x7fff,     0xffff,      0x10000, 0x7fffffff, 0x80000000,
                                               0xfffffffe, 0xffffffff, 1ULL << 63U, ~0ULL};

class Mutation {
 public:
  Mutation(std::span<const Bytes> seeds, std::mt19937_64& random) : seeds_(seeds), random_(random), bytes_(seed()) {}

  void change() {
    switch (below(9)) {
      case 0:
        return flip();
      case 1:
        return overwrite();
      case 2:
        return put_edge();
      case 3:
        return nudge();
      case 4:
        return erase();
      case 5:
        return repeat();
      case 6:
        return insert();
      case 7:
        return splice();
      default:
        return bytes_.resize(below(bytes_.size() + 1));
    }
  }

  [[nodiscard]] Bytes take() { return std::move(bytes_); }

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }
  [[nodiscard]] const Bytes& seed() { return seeds_[below(seeds_.size())]; }
  [[nodiscard]] auto at(std::size_t place) { return bytes_.begin() + static_cast<std::ptrdiff_t>(place); }

  void flip() {
    if (!bytes_.empty()) bytes_[below(bytes_.size())] ^= static_cast<std::byte>(1U << below(8));
  }

  void overwrite() {
    if (!bytes_.empty()) bytes_[below(bytes_.size())] = static_cast<std::byte>(random_());
  }

  /// A number of 1, 2, 4 or 8 bytes, mostly where numbers are.
  void put_edge() { write_number(kEdges[below(kEdges.size())]); }

  void nudge() { write_number(random_() % 64); }

  void write_number(std::uint64_t value) {
    const std::size_t width = std::size_t{1} << below(4);
    if (bytes_.size() < width) return;
    std::size_t place = below(bytes_.size() - width + 1);
    if (below(4) != 0) place -= place % width;
    std::memcpy(bytes_.data() + place, &value, width);
  }

  void erase() {
    const std::size_t from = below(bytes_.size() + 1);
    bytes_.erase(at(from), at(from + below(bytes_.size() - from + 1)));
  }

  void repeat() {
    const std::size_t from = below(bytes_.size() + 1);
    const Bytes piece(at(from), at(from + below(bytes_.size() - from + 1)));
    bytes_.insert(at(below(bytes_.size() + 1)), piece.begin(), piece.end());
  }

  void insert() {
    Bytes noise(1 + below(32));
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random_());
    bytes_.insert(at(below(bytes_.size() + 1)), noise.begin(), noise.end());
  }

  /// Appends the rest of another seed, or the whole of it.
  void splice() {
    const Bytes& other = seed();
    const std::size_t from = below(2) == 0 ? 0 : below(other.size() + 1);
    if (from > 0) bytes_.resize(std::min(from, bytes_.size()));
    bytes_.insert(bytes_.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
  }

  std::span<const Bytes> seeds_;
  std::mt19937_64& random_;
  Bytes bytes_;
};

}  // namespace

Bytes mutated(std::span<const Bytes> seeds, std::mt19937_64& random, std::size_t longest) {
  Mutation mutation(seeds, random);
  for (std::uint64_t changes = random() % 5; changes > 0; --changes) mutation.change();  // none: order is a test too
  Bytes bytes = mutation.take();
  bytes.resize(std::min(bytes.size(), longest));
  return bytes;
}

}  // namespace syntony::fuzz
