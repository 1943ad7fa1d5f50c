// Building blocks of the builders: batches of transfers, sums and routes, issued in an order that spreads the load.
//
// The order inside a batch decides which message goes first on a connection, and how a rank numbers its lanes, which is
// the order in which an executor visits them. Batches are *staggered*: rank r serves r+1 first, then r+2, and so on, so
// that in no phase do all ranks queue at the same rank.
//
// A lane runs its whole list for one slice before it turns to the next. So two phases that use the same connection get
// a *channel* each: then the first phase of slice s+1 overlaps with the second phase of slice s.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/program/program_builder.hpp"

namespace syntony {

/// `shares` equal chunks of every block: chunk b * shares + i is share i of block b.
[[nodiscard]] std::vector<Chunk> equal_chunks(Collective collective, std::uint32_t ranks, std::uint32_t shares);

/// A value and the slot that holds it.
struct Held {
  std::uint32_t rank = 0;
  Slot slot;
};

/// Moves a value from one rank to another's slot; to the same rank it is a copy.
struct Move {
  Held from, to;
};
void move_all(ProgramBuilder& builder, std::vector<Move> moves, std::uint16_t channel = 0);

/// Every rank copies its own block from its input to its output.
void copy_own(ProgramBuilder& builder);

/// How many values are summed: in order and rounded once, or neighbours first, then neighbouring sums, and so on.
enum class Association : std::uint8_t { at_once, pairwise };

/// `dst` at `owner` becomes the sum of `parts`. Messages land in scratch, except that the sum of one message and one
/// local value, in this order, is computed on arrival.
struct Sum {
  std::uint32_t owner = 0;
  std::uint32_t chunk = 0;
  Slot dst;
  std::vector<Held> parts;
  std::uint16_t channel = 0;
};
void sum_all(ProgramBuilder& builder, std::span<const Sum> sums, Association association = Association::at_once);

/// Moves a chunk from the input of the first rank of `path` to the output of the last; the ranks between relay it.
struct Route {
  std::uint32_t chunk = 0;
  std::vector<std::uint32_t> path;
  std::uint16_t channel = 0;
};
/// Issues all first hops, in the given order, then all second hops, and so on.
void relay_all(ProgramBuilder& builder, std::span<const Route> routes);

}  // namespace syntony
