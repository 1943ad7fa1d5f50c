// A Program together with what would otherwise be recomputed at every launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/program/depth.hpp"
#include "core/program/program.hpp"

namespace syntony {

struct ElementRange {
  std::size_t first = 0;
  std::size_t count = 0;
};

class PreparedProgram {
 public:
  /// `program` must be validated.
  explicit PreparedProgram(std::shared_ptr<const Program> program);
  explicit PreparedProgram(Program program) : PreparedProgram(std::make_shared<const Program>(std::move(program))) {}

  [[nodiscard]] const Program& program() const { return *program_; }
  [[nodiscard]] const std::shared_ptr<const Program>& shared() const { return program_; }
  [[nodiscard]] std::uint64_t hash() const { return hash_; }
  [[nodiscard]] std::uint32_t message_slots() const { return message_slots_; }
  [[nodiscard]] bool needs_size_matrix() const { return needs_size_matrix_; }
  /// The most connections that any rank sends over; at least 1.
  [[nodiscard]] std::uint32_t most_connections() const { return most_connections_; }
  /// The elements that `chunk` covers of a block of `elements` elements.
  [[nodiscard]] ElementRange range(std::uint32_t chunk, std::size_t elements) const {
    const Share& share = shares_[chunk];
    const std::size_t first = part(elements, share.before, share.total);
    return {first, part(elements, share.after, share.total) - first};
  }
  /// The elements of a slice of `chunk` if a slice of the heaviest chunk has `longest`: in proportion to their weights,
  /// plus two because ranges are rounded. Very light chunks end early instead of sending tiny messages.
  [[nodiscard]] std::size_t slice(std::uint32_t chunk, std::size_t longest) const {
    const std::size_t share = longest * program_->chunks[chunk].weight / heaviest_ + 2;
    return std::min(longest, std::max(share, longest / kShortestSlice));
  }
  [[nodiscard]] std::uint32_t block(std::uint32_t chunk) const { return program_->chunks[chunk].block; }
  /// The bytes of a slice, of those between `least` and `most`, if all blocks have `elements` elements of
  /// `element_bytes`: long ones cost fewer system calls, but where ranks wait for what others pass on, they wait for a
  /// whole slice. `sockets`: between two ranks, at least 1.
  [[nodiscard]] std::uint32_t slice_bytes(std::size_t elements, std::size_t element_bytes, std::uint32_t least,
                                          std::uint32_t most, std::size_t sockets) const;
  /// The number of phases in which the chunks must move so that no message has more than `slots` slots of one phase, if
  /// possible. Chunk c moves in phase c mod that number. 1 for nearly every Program.
  [[nodiscard]] std::uint32_t phases(std::size_t slots) const;
  /// The most slots that a message has in any one of `phases` phases.
  [[nodiscard]] std::uint32_t message_slots(std::uint32_t phases) const;

  static constexpr std::uint32_t kManyRanks = 16;  // their slices are always short, which bounds their memory

 private:
  static constexpr std::size_t kShortestSlice = 16;  // no slice is shorter than this fraction of the longest

  /// elements * share / total with share <= total. The product of many elements and a heavy chunk exceeds 64 bits.
  [[nodiscard]] static std::size_t part(std::size_t elements, std::uint64_t share, std::uint64_t total) {
    std::uint64_t product = 0;
    if (!__builtin_mul_overflow(std::uint64_t{elements}, share, &product)) return product / total;
    return static_cast<std::size_t>(static_cast<unsigned __int128>(elements) * share / total);
  }

  struct Share {
    std::uint64_t before, after, total;
  };
  std::shared_ptr<const Program> program_;
  std::uint64_t hash_;
  std::uint32_t message_slots_;
  bool needs_size_matrix_;
  std::uint32_t most_connections_ = 1;
  std::uint32_t heaviest_ = 1;       // weight of a chunk
  std::uint32_t largest_chunk_ = 0;  // in a call whose blocks are equal
  ProgramDepth depth_;               // all 0 with many ranks
  std::vector<Share> shares_;        // per chunk
};

}  // namespace syntony
