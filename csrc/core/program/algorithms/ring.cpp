#include "core/program/algorithms/ring.hpp"

#include "core/program/moves/moves.hpp"

namespace syntony {
namespace {

/// Chunk c goes from rank c+1 to rank c, accumulating the sum, and ends in the output of rank c.
void reduce_around(ProgramBuilder& builder) {
  const std::uint32_t ranks = builder.ranks();
  std::vector<Slot> partial;
  for (std::uint32_t chunk = 0; chunk < ranks; ++chunk) partial.push_back(builder.input((chunk + 1) % ranks, chunk));
  for (std::uint32_t hop = 1; hop < ranks; ++hop) {
    for (std::uint32_t chunk = 0; chunk < ranks; ++chunk) {
      const std::uint32_t from = (chunk + hop) % ranks, to = (from + 1) % ranks;
      const Slot sum = builder.place(to, chunk);
      builder.transfer_reduce(from, partial[chunk], to, sum, builder.input(to, chunk));
      partial[chunk] = sum;
    }
  }
}

/// Chunk c goes from rank c, where it is in `from`, to every output.
void gather_around(ProgramBuilder& builder, Space from, std::uint16_t channel) {
  const std::uint32_t ranks = builder.ranks();
  for (std::uint32_t hop = 0; hop + 1 < ranks; ++hop) {
    for (std::uint32_t chunk = 0; chunk < ranks; ++chunk) {
      const std::uint32_t here = (chunk + hop) % ranks, next = (here + 1) % ranks;
      const bool at_home = hop == 0 && from == Space::input;
      builder.transfer(here, at_home ? builder.input(here, chunk) : builder.output(here, chunk), next,
                       builder.output(next, chunk), channel);
    }
  }
}

void broadcast_along(ProgramBuilder& builder, std::uint32_t root) {
  const std::uint32_t ranks = builder.ranks();
  for (std::uint32_t hop = 0; hop + 1 < ranks; ++hop) {
    const std::uint32_t here = (root + hop) % ranks, next = (here + 1) % ranks;
    builder.transfer(here, hop == 0 ? builder.input(here, 0) : builder.output(here, 0), next, builder.output(next, 0));
  }
  builder.copy(root, builder.output(root, 0), builder.input(root, 0));
}

void reduce_along(ProgramBuilder& builder, std::uint32_t root) {
  const std::uint32_t ranks = builder.ranks();
  Slot partial = builder.input((root + 1) % ranks, 0);
  for (std::uint32_t hop = 1; hop < ranks; ++hop) {
    const std::uint32_t from = (root + hop) % ranks, to = (from + 1) % ranks;
    const Slot sum = builder.place(to, 0);
    builder.transfer_reduce(from, partial, to, sum, builder.input(to, 0));
    partial = sum;
  }
  if (ranks == 1) builder.copy(root, builder.output(root, 0), partial);
}

/// The shorter way round; on a tie, even ranks go forward and odd ones backward.
std::vector<std::uint32_t> shorter_way(std::uint32_t ranks, std::uint32_t from, std::uint32_t to) {
  const std::uint32_t ahead = (to + ranks - from) % ranks;
  const bool forward = 2 * ahead < ranks || (2 * ahead == ranks && from % 2 == 0);
  std::vector<std::uint32_t> path{from};
  while (path.back() != to) path.push_back((path.back() + (forward ? 1 : ranks - 1)) % ranks);
  return path;
}

/// The longest routes go first, so that they are in flight while links would otherwise be idle.
void relay_around(ProgramBuilder& builder, Collective collective, std::uint32_t root) {
  const std::uint32_t ranks = builder.ranks();
  std::vector<Route> routes;
  for (std::uint32_t shift = 0; shift < ranks; ++shift) {
    // ranks/2, ranks/2 + 1, ranks/2 - 1, ..: decreasing distance
    const std::uint32_t ahead = shift % 2 == 0 ? ranks / 2 - shift / 2 : ranks / 2 + (shift + 1) / 2;
    for (std::uint32_t from = 0; from < ranks; ++from) {
      const std::uint32_t to = (from + ahead) % ranks;
      if (collective == Collective::gather && to != root) continue;
      if (collective == Collective::scatter && from != root) continue;
      const std::uint32_t chunk = collective == Collective::gather    ? from
                                  : collective == Collective::scatter ? to
                                                                      : from * ranks + to;
      routes.push_back({.chunk = chunk, .path = shorter_way(ranks, from, to)});
    }
  }
  relay_all(builder, routes);
}

}  // namespace

Program ring(Collective collective, std::uint32_t ranks, std::uint32_t root) {
  const std::uint32_t shares = collective == Collective::all_reduce ? ranks : 1;
  ProgramBuilder builder("ring", collective, ranks, root, equal_chunks(collective, ranks, shares));
  switch (collective) {
    case Collective::all_reduce:
      reduce_around(builder);
      gather_around(builder, Space::output, 1);
      if (ranks == 1) copy_own(builder);
      break;
    case Collective::reduce_scatter:
      reduce_around(builder);
      if (ranks == 1) copy_own(builder);
      break;
    case Collective::all_gather:
      gather_around(builder, Space::input, 0);
      copy_own(builder);
      break;
    case Collective::broadcast:
      broadcast_along(builder, root);
      break;
    case Collective::reduce:
      reduce_along(builder, root);
      break;
    case Collective::all_to_all:
    case Collective::gather:
    case Collective::scatter:
      relay_around(builder, collective, root);
      break;
  }
  return builder.finish();
}

}  // namespace syntony
