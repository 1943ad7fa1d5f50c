// What all steps of a shared collective know, and the table of what is different about the eight collectives.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/kernels/kernels.hpp"
#include "core/kernels/vector_copy.hpp"
#include "core/one_host/shared_rounds.hpp"
#include "core/program/block.hpp"
#include "core/program/program.hpp"

namespace syntony {

/// Who shows, who reads, and whether a source has a block for each destination, a destination one from each source.
struct SharedShape {
  bool root_shows;
  bool root_reads;
  bool blocks_by_source;
  bool blocks_by_destination;
};

[[nodiscard]] constexpr SharedShape shape_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return {false, false, false, false};
    case Collective::all_gather:
      return {false, false, true, false};
    case Collective::reduce_scatter:
      return {false, false, false, true};
    case Collective::all_to_all:
      return {false, false, true, true};
    case Collective::broadcast:
      return {true, false, false, false};
    case Collective::reduce:
      return {false, true, false, false};
    case Collective::gather:
      return {false, true, true, false};
    case Collective::scatter:
      return {true, false, false, true};
  }
  return {};
}

/// Elements [first, first + count) of a block.
struct Stretch {
  std::size_t first = 0;
  std::size_t count = 0;
};

struct SharedJob {
  SharedRounds& rounds;
  std::span<const Block> blocks;
  Collective collective;
  DType dtype;
  ReduceOp op;
  std::uint32_t root;

  SharedShape shape = shape_of(collective);
  std::size_t element_bytes = size_of(dtype);
  std::uint32_t rank = rounds.rank();
  std::uint32_t ranks = rounds.ranks();
  std::uint32_t destinations = shape.blocks_by_destination ? ranks : 1;  // for which a source has blocks of their own
  bool shows = !shape.root_shows || rank == root;
  bool reads = !shape.root_reads || rank == root;

  [[nodiscard]] const Block& block(std::uint32_t from, std::uint32_t to) const {
    return blocks[(shape.blocks_by_source ? from * destinations : 0) + (shape.blocks_by_destination ? to : 0)];
  }
  [[nodiscard]] bool reads_from(std::uint32_t peer) const { return reads && (!shape.root_shows || peer == root); }

  void copy(std::byte* to, const std::byte* from, std::size_t elements) const {
    if (elements > 0 && to != from) vector_copy(to, from, elements * element_bytes);
  }
  /// Adds (or whatever the operator is) what `source(rank)` points to, in the order of ranks, so that results are equal
  /// wherever they are computed.
  template <typename Source>
  void reduce_all(std::byte* to, std::size_t elements, const Source& source) const {
    std::array<const std::byte*, kMostRanksOfHost> sources;
    for (std::uint32_t from = 0; from < ranks; ++from) sources[from] = source(from);
    reduce(dtype, op, to, std::span(sources).first(ranks), elements);
  }
  /// The part of a stretch that `of` adds up: whole cache lines.
  [[nodiscard]] Stretch share(std::uint32_t of, Stretch whole) const {
    const std::size_t line = kCacheLine / element_bytes;
    const std::size_t each = (whole.count / ranks + line) / line * line;
    const std::size_t begin = std::min(whole.count, of * each);
    return {whole.first + begin, std::min(whole.count - begin, each)};
  }
};

}  // namespace syntony
