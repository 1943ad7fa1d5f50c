// The two ways to cut a collective into rounds (pieces are small enough to stay in cache between ranks):
//
//      exchange  (all of them)            round i: show piece i of what others need; read theirs
//
//                 rank 0  [ a0 b0 ] ---> | a0 b0 |         all_reduce: everybody adds everything
//                 rank 1  [ a1 b1 ] ---> | a1 b1 |         all_gather, all_to_all, ..: everybody copies its part
//
//      two-shot  (all_reduce and reduce   round i: show piece i without one's own share, and one's share of the sum of
//                 of many bytes)                   piece i-1; add up one's share of piece i, copy the others' of i-1
//
//                 rank 0  [ a0 b0 ] ---> |    b0 |  a = a0+a1 ---> | a |  ---> [ a b ]
//                 rank 1  [ a1 b1 ] ---> | a1    |  b = b0+b1 ---> | b |  ---> [ a b ]
//
// Sums are taken in the order of ranks, so they are equal on all of them.
#include "core/shared/shared_steps.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/kernels/kernels.hpp"

namespace syntony {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{128} << 10U;   // what a rank shows in a round, at most
constexpr std::size_t kOneShotBytes = std::size_t{64} << 10U;  // read by one rank: beyond, shares of a sum pay
constexpr std::size_t kMostRanks = 252;                        // of a host (shm_segment.cpp)
static_assert(kPieceBytes + kPieceBytes / 2 + 2 * kCacheLine <= SharedPlace::kStageBytes);

/// What is different about the eight collectives: who shows, who reads, and which block goes from source to
/// destination: source * by_source + destination * by_destination, counted in blocks (`ranks` where it says so).
struct Shape {
  bool root_shows;
  bool root_reads;
  bool blocks_by_source;
  bool blocks_by_destination;
};

constexpr Shape shape_of(Collective collective) {
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

struct Range {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// What all steps know.
struct Job {
  SharedExchange& exchange;
  std::span<const Block> blocks;
  DType dtype;
  ReduceOp op;
  std::size_t element_bytes;
  std::uint32_t rank;
  std::uint32_t ranks;
  std::uint32_t root;
};

void copy(const Job& job, std::byte* to, const std::byte* from, std::size_t elements) {
  if (elements > 0 && to != from) std::memcpy(to, from, elements * job.element_bytes);
}

/// Sums (or whatever the operator is) what `source(rank)` points to, in the order of ranks.
template <typename Source>
void reduce_all(const Job& job, std::byte* to, std::size_t elements, const Source& source) {
  std::array<const std::byte*, kMostRanks> sources;
  for (std::uint32_t from = 0; from < job.ranks; ++from) sources[from] = source(from);
  reduce(job.dtype, job.op, to, std::span(sources).first(job.ranks), elements);
}

class ExchangeSteps final : public SharedSteps {
 public:
  ExchangeSteps(const Job& job, Collective collective)
      : job_(job),
        shape_(shape_of(collective)),
        reduces_(syntony::reduces(collective)),
        shows_(!shape_.root_shows || job.rank == job.root),
        reads_(!shape_.root_reads || job.rank == job.root),
        destinations_(shape_.blocks_by_destination ? job.ranks : 1),
        longest_(std::ranges::max(job.blocks, {}, &Block::elements).elements),
        piece_(std::max<std::size_t>(1, kPieceBytes / destinations_ / job.element_bytes)),
        pitch_(std::min(piece_, longest_) * job.element_bytes),
        inlined_(pitch_ * destinations_ <= SharedPlace::kInlineBytes) {
    if (!inlined_) pitch_ = (pitch_ + kCacheLine - 1) / kCacheLine * kCacheLine;
  }

  [[nodiscard]] bool done() const override { return first_ >= longest_; }

  [[nodiscard]] bool needs(std::uint32_t peer) const override {
    return reads_ && (!shape_.root_shows || peer == job_.root);
  }

  void show() override {
    if (!shows_) return;
    std::byte* place = room(job_.exchange.next());
    for (std::uint32_t to = 0; to < destinations_; ++to) {
      if (shape_.blocks_by_destination && to == job_.rank) continue;
      const Block& block = block_of(job_.rank, to);
      const Range part = piece_of(block);
      copy(job_, place + to * pitch_, block.input + part.first * job_.element_bytes, part.count);
    }
  }

  bool read() override {
    if (reads_) {
      if (reduces_) {
        add();
      } else {
        take();
      }
    }
    first_ += piece_;
    return true;
  }

 private:
  [[nodiscard]] std::byte* room(SharedPlace& place) const {
    return inlined_ ? place.inlined.data() : place.stage.data();
  }
  [[nodiscard]] const Block& block_of(std::uint32_t from, std::uint32_t to) const {
    return job_.blocks[(shape_.blocks_by_source ? from * destinations_ : 0) + (shape_.blocks_by_destination ? to : 0)];
  }
  [[nodiscard]] Range piece_of(const Block& block) const {
    if (first_ >= block.elements) return {};
    return {first_, std::min(piece_, block.elements - first_)};
  }
  /// Where this round's piece of what `from` has for this rank lies.
  [[nodiscard]] const std::byte* source(std::uint32_t from, const Block& block, std::size_t first) const {
    if (from == job_.rank) return block.input + first * job_.element_bytes;
    return room(job_.exchange.place(from)) + (shape_.blocks_by_destination ? job_.rank * pitch_ : 0);
  }

  void add() {
    const Block& block = block_of(0, job_.rank);
    const Range part = piece_of(block);
    if (part.count == 0) return;
    reduce_all(job_, block.output + part.first * job_.element_bytes, part.count,
               [&](std::uint32_t from) { return source(from, block, part.first); });
  }

  void take() {
    const std::uint32_t first = shape_.root_shows ? job_.root : 0;
    const std::uint32_t last = shape_.root_shows ? job_.root : job_.ranks - 1;
    for (std::uint32_t from = first; from <= last; ++from) {
      const Block& block = block_of(from, job_.rank);
      const Range part = piece_of(block);
      if (part.count == 0) continue;
      copy(job_, block.output + part.first * job_.element_bytes, source(from, block, part.first), part.count);
    }
  }

  Job job_;
  Shape shape_;
  bool reduces_;
  bool shows_;
  bool reads_;
  std::uint32_t destinations_;
  std::size_t longest_;    // block, in elements
  std::size_t piece_;      // of a block, in elements
  std::size_t pitch_;      // between the pieces in a place, in bytes
  bool inlined_;           // in the stamp's own line
  std::size_t first_ = 0;  // element of this round's piece
};

class TwoShotSteps final : public SharedSteps {
 public:
  TwoShotSteps(const Job& job, bool to_all)
      : job_(job),
        block_(job.blocks.front()),
        reads_(to_all || job.rank == job.root),
        piece_(kPieceBytes / job.element_bytes) {}

  [[nodiscard]] bool done() const override { return finished_; }
  [[nodiscard]] bool needs(std::uint32_t /*peer*/) const override { return true; }

  void show() override {
    std::byte* stage = job_.exchange.next().stage.data();
    const Range part = piece(first_);
    for (std::uint32_t to = 0; to < job_.ranks; ++to) {
      const Range share = share_of(to, part);
      if (to != job_.rank)
        copy(job_, stage + (share.first - part.first) * job_.element_bytes, input(share), share.count);
    }
  }

  bool read() override {
    const Range part = piece(first_);
    const Range share = share_of(job_.rank, part);
    // All peers are in this round, so the next place is free: the sum goes there and waits for show().
    std::byte* sum = job_.exchange.next().stage.data() + kPieceBytes;
    if (share.count > 0) {
      reduce_all(job_, sum, share.count, [&](std::uint32_t from) {
        if (from == job_.rank) return input(share);
        return static_cast<const std::byte*>(job_.exchange.place(from).stage.data()) +
               (share.first - part.first) * job_.element_bytes;
      });
      if (reads_) copy(job_, output(share), sum, share.count);
    }
    if (first_ > 0 && reads_) {
      const Range before = piece(first_ - piece_);
      for (std::uint32_t from = 0; from < job_.ranks; ++from) {
        const Range theirs = share_of(from, before);
        if (from != job_.rank)
          copy(job_, output(theirs), job_.exchange.place(from).stage.data() + kPieceBytes, theirs.count);
      }
    }
    finished_ = first_ >= block_.elements;
    first_ += piece_;
    return true;
  }

 private:
  [[nodiscard]] Range piece(std::size_t first) const {
    return {first, first < block_.elements ? std::min(piece_, block_.elements - first) : 0};
  }
  /// The share of a piece that `rank` adds up: whole cache lines.
  [[nodiscard]] Range share_of(std::uint32_t rank, Range part) const {
    const std::size_t line = kCacheLine / job_.element_bytes;
    const std::size_t share = (part.count / job_.ranks + line) / line * line;
    const std::size_t begin = std::min(part.count, rank * share);
    return {part.first + begin, std::min(part.count - begin, share)};
  }
  [[nodiscard]] const std::byte* input(Range range) const { return block_.input + range.first * job_.element_bytes; }
  [[nodiscard]] std::byte* output(Range range) const { return block_.output + range.first * job_.element_bytes; }

  Job job_;
  Block block_;
  bool reads_;
  std::size_t piece_;      // elements
  std::size_t first_ = 0;  // element of this round's piece
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<SharedSteps> shared_steps(SharedExchange& exchange, const Descriptor& descriptor,
                                          std::span<const Block> blocks) {
  const Job job{exchange,        blocks,           descriptor.dtype, descriptor.op, size_of(descriptor.dtype),
                exchange.rank(), exchange.ranks(), descriptor.root};
  const Collective collective = descriptor.collective;
  const bool sums_one_block = collective == Collective::all_reduce || collective == Collective::reduce;
  if (sums_one_block && blocks[0].elements * job.element_bytes * job.ranks > kOneShotBytes) {
    return std::make_unique<TwoShotSteps>(job, collective == Collective::all_reduce);
  }
  return std::make_unique<ExchangeSteps>(job, collective);
}

}  // namespace syntony
