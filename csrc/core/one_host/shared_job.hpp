// What all steps of a shared collective need to know.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/call.hpp"
#include "core/kernels/kernels.hpp"
#include "core/kernels/vector_copy.hpp"
#include "core/one_host/shared_rounds.hpp"
#include "core/one_host/shared_way.hpp"

namespace syntony {

/// Elements [first, first + count) of a block.
struct Stretch {
  std::size_t first = 0;
  std::size_t count = 0;
};

struct SharedJob {
  SharedRounds& rounds;
  const Call& call;

  const CollectiveFacts& facts = facts_of(call.collective);
  std::size_t element_bytes = call.element_bytes();
  std::uint32_t rank = rounds.rank();
  std::uint32_t ranks = rounds.ranks();
  std::uint32_t destinations = blocks_of_source(call.collective, ranks);  // with blocks of their own per source
  bool shows = !facts.root_gives || rank == call.root;
  bool reads = !facts.root_takes || rank == call.root;
  std::size_t longest_bytes = call.longest() * element_bytes;  // of a block
  bool streams = false;                                        // outputs bypass the caches

  [[nodiscard]] const Block& block(std::uint32_t from, std::uint32_t to) const {
    return call.blocks[(facts.by_source ? from * destinations : 0) + (facts.by_destination ? to : 0)];
  }
  [[nodiscard]] bool reads_from(std::uint32_t peer) const { return reads && (!facts.root_gives || peer == call.root); }

  /// Copies to an output from what a peer shows,
  void take(std::byte* to, const std::byte* from, std::size_t elements) const {
    if (streams) return deliver(to, from, elements);
    if (elements > 0) rounds.peer_reads().copy(to, from, elements * element_bytes);
  }
  /// or from an input.
  void deliver(std::byte* to, const std::byte* from, std::size_t elements) const {
    if (elements == 0 || to == from) return;
    (streams ? streaming_copy : vector_copy)(to, from, elements * element_bytes);
  }
  /// Copies into this rank's next buffer.
  void show(std::byte* to, const std::byte* from, std::size_t elements) const {
    if (elements > 0 && to != from) rounds.shown_copy()(to, from, elements * element_bytes);
  }
  /// Reduces what `source(rank)` points to, in rank order, so that results are equal wherever they are computed. `past`
  /// the caches, if `to` is none of the sources.
  template <typename Source>
  void reduce_all(std::byte* to, std::size_t elements, const Source& source, bool past = false) const {
    if (past) return reduce_all_beside(to, elements, source, {});
    const auto operands = operands_of(source);
    rounds.peer_reads().sum(call.dtype, call.op, to, std::span(operands).first(ranks), elements);
  }
  /// The same past the caches, and what is moved beside it.
  template <typename Source>
  void reduce_all_beside(std::byte* to, std::size_t elements, const Source& source, const Beside& beside) const {
    const auto operands = operands_of(source);
    reduce_past_beside(call.dtype, call.op, to, std::span(operands).first(ranks), elements, beside);
  }
  template <typename Source>
  [[nodiscard]] std::array<const std::byte*, kMostRanksOfHost> operands_of(const Source& source) const {
    std::array<const std::byte*, kMostRanksOfHost> operands;
    for (std::uint32_t from = 0; from < ranks; ++from) operands[from] = source(from);
    return operands;
  }
  /// The part of a stretch that rank `of` reduces: whole cache lines.
  [[nodiscard]] Stretch share(std::uint32_t of, Stretch whole) const {
    const std::size_t line = kCacheLine / element_bytes;
    const std::size_t each = (whole.count + ranks * line - 1) / (ranks * line) * line;
    const std::size_t begin = std::min(whole.count, of * each);
    return {whole.first + begin, std::min(whole.count - begin, each)};
  }
};

}  // namespace syntony
