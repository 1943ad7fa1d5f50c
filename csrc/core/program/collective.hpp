// The eight collectives and the one table of their differences. Everything reads it, Python through
// `_core.COLLECTIVES`; only the checker has its own (synth/checker/contract.py), and a test compares the two.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace syntony {

enum class Collective : std::uint8_t {
  all_reduce,      // 1 block;        input: all chunks          output: all chunks
  all_gather,      // block per rank; input: own block           output: all blocks
  reduce_scatter,  // block per rank; input: all blocks          output: own block
  all_to_all,      // block s*n+d;    input: blocks (self, d)    output: blocks (s, self)
  broadcast,       // 1 block;        input: root only           output: all
  reduce,          // 1 block;        input: all                 output: root only
  gather,          // block per rank; input: own block           output: all blocks, root only
  scatter,         // block per rank; input: all, root only      output: own block
};

struct CollectiveFacts {
  std::string_view name;
  bool reduces = false;         // blocks of several ranks are reduced; else each is moved
  bool root_gives = false;      // only the root has an input
  bool root_takes = false;      // only the root has an output
  bool by_source = false;       // each source has blocks of its own
  bool by_destination = false;  // each destination has blocks of its own

  [[nodiscard]] constexpr bool rooted() const { return root_gives || root_takes; }
};

inline constexpr std::array<CollectiveFacts, 8> kCollectives{{
    {.name = "all_reduce", .reduces = true},
    {.name = "all_gather", .by_source = true},
    {.name = "reduce_scatter", .reduces = true, .by_destination = true},
    {.name = "all_to_all", .by_source = true, .by_destination = true},
    {.name = "broadcast", .root_gives = true},
    {.name = "reduce", .reduces = true, .root_takes = true},
    {.name = "gather", .root_takes = true, .by_source = true},
    {.name = "scatter", .root_gives = true, .by_destination = true},
}};

[[nodiscard]] constexpr const CollectiveFacts& facts_of(Collective collective) {
  return kCollectives[static_cast<std::size_t>(collective)];
}
[[nodiscard]] constexpr std::string_view name_of(Collective collective) { return facts_of(collective).name; }
[[nodiscard]] constexpr bool reduces(Collective collective) { return facts_of(collective).reduces; }
[[nodiscard]] Collective collective_named(std::string_view name);  // throws std::invalid_argument

/// Blocks of one source: one per destination, or one for all.
[[nodiscard]] constexpr std::uint32_t blocks_of_source(Collective collective, std::uint32_t ranks) {
  return facts_of(collective).by_destination ? ranks : 1;
}
/// Block `source * blocks_of_source + destination` if sources and destinations have blocks of their own.
[[nodiscard]] constexpr std::uint32_t block_count(Collective collective, std::uint32_t ranks) {
  return (facts_of(collective).by_source ? ranks : 1) * blocks_of_source(collective, ranks);
}
/// Blocks that one rank is involved with.
[[nodiscard]] constexpr std::uint32_t blocks_of_rank(Collective collective, std::uint32_t ranks) {
  return std::min(block_count(collective, ranks), ranks);
}

/// True if `rank`'s input holds `block`.
[[nodiscard]] constexpr bool starts_with(Collective collective, std::uint32_t ranks, std::uint32_t root,
                                         std::uint32_t rank, std::uint32_t block) {
  const CollectiveFacts& facts = facts_of(collective);
  if (facts.by_source) return block / blocks_of_source(collective, ranks) == rank;
  return !facts.root_gives || rank == root;
}

/// True if `rank`'s output holds `block`.
[[nodiscard]] constexpr bool ends_with(Collective collective, std::uint32_t ranks, std::uint32_t root,
                                       std::uint32_t rank, std::uint32_t block) {
  const CollectiveFacts& facts = facts_of(collective);
  if (facts.by_destination) return block % ranks == rank;
  return !facts.root_takes || rank == root;
}

}  // namespace syntony
