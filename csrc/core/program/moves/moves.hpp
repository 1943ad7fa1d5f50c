// What the builders are made of: batches of transfers, sums and routes, written in an order that spreads the load.
//
// The order inside a batch decides two things: which message goes first on a connection, and how a rank numbers its
// lanes, which is the order in which an executor visits them. Batches are *staggered*: rank r turns to r+1 first, then
// to r+2, and so on, so that in no phase does everybody queue at the same rank.
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

/// A value, where it lies.
struct Held {
  std::uint32_t rank = 0;
  Slot slot;
};

/// A value goes from one rank to another's slot; to the same rank it is a copy.
struct Move {
  Held from, to;
};
void move_all(ProgramBuilder& builder, std::vector<Move> moves, std::uint16_t channel = 0);

/// How a sum of many is taken: in their order and rounded once, or of neighbours, then of these sums, and so on.
enum class Association : std::uint8_t { at_once, pairwise };

/// `dst` at `owner` becomes the sum of `parts`. Messages land in scratch, but the sum of one message and one value at
/// home, in this order, is taken on arrival.
struct Sum {
  std::uint32_t owner = 0;
  std::uint32_t chunk = 0;
  Slot dst;
  std::vector<Held> parts;
  std::uint16_t channel = 0;
};
void sum_all(ProgramBuilder& builder, std::span<const Sum> sums, Association association = Association::at_once);

/// A chunk goes from the input of the first rank of `path` to the output of the last; the ranks between relay it.
struct Route {
  std::uint32_t chunk = 0;
  std::vector<std::uint32_t> path;
  std::uint16_t channel = 0;
};
/// First everybody's first hop, in the order given, then everybody's second hop, and so on.
void relay_all(ProgramBuilder& builder, std::span<const Route> routes);

}  // namespace syntony
