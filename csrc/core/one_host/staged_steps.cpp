// The two ways to cut a collective into rounds (pieces are small enough to stay in cache between ranks):
//
//     exchange  (all of them)            round i: show piece i of what others need; read theirs
//
//                rank 0  [ a0 b0 ] ---> | a0 b0 |         all_reduce: every rank adds everything
//                rank 1  [ a1 b1 ] ---> | a1 b1 |         all_gather, all_to_all, ..: every rank copies its part
//
//     two-shot  (large all_reduce        round i: show piece i without one's own share, and one's share of the sum of
//                and reduce)                      piece i-1; sum one's share of piece i, copy the others' of i-1
//
//                rank 0  [ a0 b0 ] ---> |    b0 |  a = a0+a1 ---> | a |  ---> [ a b ]
//                rank 1  [ a1 b1 ] ---> | a1    |  b = b0+b1 ---> | b |  ---> [ a b ]
//
//                If outputs of two ranks go past the caches, the sum, the copies and what the next round shows are one
//                loop.
//
// Sums are computed in rank order, so they are equal on all ranks.
#include <algorithm>
#include <span>

#include "core/one_host/shared_job.hpp"
#include "core/one_host/shared_steps.hpp"
#include "core/one_host/shared_way.hpp"
#include "core/sizes.hpp"

namespace syntony {
namespace {

// What several peers receive is shown in one round if it fits: fewer turns if ranks share CPUs (8 ranks on 2 CPUs, 384
// KiB and 1 MiB, us: all_to_all of 1 MiB 680 and 470, of 16 MiB 15,100 and 11,800, reduce_scatter 600 and 460, 13,200
// and 10,400; 4 ranks: much the same).
constexpr std::size_t kDealtBytes = StageBuffer::kStageBytes - kMostRanksOfHost * kCacheLine;

constexpr std::size_t whole_lines(std::size_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine; }

/// Where `rank` shows that part, of `bytes` bytes in all, of a round. Ranks that contribute equally many bytes agree.
std::byte* turn(const SharedRounds& rounds, StagePart part, std::uint32_t rank, std::uint64_t round,
                std::size_t bytes) {
  const std::size_t turns = turn_bytes(rounds.ranks(), bytes) / std::max(bytes, kCacheLine);
  const std::size_t place = turns > 1 ? rounds.uses(part, round) % turns : 0;
  return rounds.stage(part, rank, round).stage.data() + place * bytes;
}

class ExchangeSteps final : public SharedSteps {
 public:
  explicit ExchangeSteps(const SharedJob& job)
      : job_(job),
        longest_(job.call.longest()),
        shown_(job.facts.by_destination ? job.destinations - 1 : 1),
        piece_(
            std::max<std::size_t>(1, (shown_ > 1 ? kDealtBytes / shown_ : piece_bytes(job.ranks)) / job.element_bytes)),
        pitch_(std::min(piece_, longest_) * job.element_bytes),
        inlined_(pitch_ * shown_ <= StageBuffer::kInlineBytes) {
    if (!inlined_) pitch_ = whole_lines(pitch_);
  }

  [[nodiscard]] bool done() const override { return first_ >= longest_; }

  [[nodiscard]] bool needs(std::uint32_t peer) const override { return job_.reads_from(peer); }

  void show() override {
    if (!inlined_) job_.rounds.use_next(StagePart::pieces);
    if (!job_.shows) return;
    std::byte* memory = memory_of(job_.rank, job_.rounds.round() + 1);
    for (std::uint32_t to = 0; to < job_.destinations; ++to) {
      if (job_.facts.by_destination && to == job_.rank) continue;
      const Block& block = job_.block(job_.rank, to);
      const Stretch part = piece_of(block);
      job_.show(memory + place(job_.rank, to), block.input + part.first * job_.element_bytes, part.count);
    }
  }

  void meanwhile() override {
    if (!job_.facts.reduces && job_.reads) take(job_.rank);
  }

  bool read() override {
    if (job_.reads) {
      if (job_.facts.reduces) {
        add();
      } else {
        for (std::uint32_t from = 0; from < job_.ranks; ++from) {
          if (from != job_.rank) take(from);
        }
      }
    }
    first_ += piece_;
    return true;
  }

 private:
  [[nodiscard]] std::byte* memory_of(std::uint32_t rank, std::uint64_t round) const {
    if (inlined_) return job_.rounds.buffer(rank, round).inlined.data();
    return turn(job_.rounds, StagePart::pieces, rank, round, pitch_ * shown_);
  }
  [[nodiscard]] Stretch piece_of(const Block& block) const {
    if (first_ >= block.elements) return {};
    return {first_, std::min(piece_, block.elements - first_)};
  }
  /// Where the piece for `to` is in what `from` shows; a rank shows nothing to itself.
  [[nodiscard]] std::size_t place(std::uint32_t from, std::uint32_t to) const {
    return job_.facts.by_destination ? (to < from ? to : to - 1) * pitch_ : 0;
  }
  /// Where this round's piece from `from` for this rank is.
  [[nodiscard]] const std::byte* source(std::uint32_t from, const Block& block, std::size_t first) const {
    if (from == job_.rank) return block.input + first * job_.element_bytes;
    return memory_of(from, job_.rounds.round()) + place(from, job_.rank);
  }

  void add() {
    const Block& block = job_.block(0, job_.rank);
    const Stretch part = piece_of(block);
    if (part.count == 0) return;
    job_.reduce_all(
        block.output + part.first * job_.element_bytes, part.count,
        [&](std::uint32_t from) { return source(from, block, part.first); },
        job_.streams && block.output != block.input);
  }

  void take(std::uint32_t from) {
    if (!job_.reads_from(from)) return;
    const Block& block = job_.block(from, job_.rank);
    const Stretch part = piece_of(block);
    if (part.count == 0) return;
    std::byte* const output = block.output + part.first * job_.element_bytes;
    const std::byte* const input = source(from, block, part.first);
    from == job_.rank ? job_.deliver(output, input, part.count) : job_.take(output, input, part.count);
  }

  SharedJob job_;
  std::size_t longest_;    // block, in elements
  std::uint32_t shown_;    // pieces per round, of different blocks
  std::size_t piece_;      // per block, in elements
  std::size_t pitch_;      // between the pieces in a buffer, in bytes
  bool inlined_;           // whether the piece fits the stamp's own line
  std::size_t first_ = 0;  // first element of this round's piece
};

class TwoShotSteps final : public SharedSteps {
 public:
  explicit TwoShotSteps(const SharedJob& job)
      : job_(job),
        block_(job.call.blocks.front()),
        piece_(piece_bytes(job.ranks) / job.element_bytes),
        share_(whole_lines(job.share(0, piece(0)).count * job.element_bytes)) {
    // What an output in place overwrites has just been read, so it lies in the caches.
    job_.streams = job_.streams && job_.reads && block_.output != block_.input;
  }

  [[nodiscard]] bool done() const override { return finished_; }
  [[nodiscard]] bool needs(std::uint32_t /*peer*/) const override { return true; }

  void show() override {
    if (first_ > 0) return;
    job_.rounds.use_next(StagePart::pieces);
    show_piece(piece(0));
  }

  // All peers are in this round, so the next buffer is free: what the next round shows goes there.
  bool read() override {
    finished_ = first_ >= block_.elements;
    const Stretch before = first_ > 0 ? piece(first_ - piece_) : Stretch{}, after = piece(first_ + piece_);
    if (!finished_) job_.rounds.use_next(StagePart::sums);
    if (after.count > 0) job_.rounds.use_next(StagePart::pieces);
    if (job_.streams && job_.ranks == 2 && even(before) && even(after)) {
      at_once(before, after);
    } else {
      sum();
      if (job_.reads) take(before);
      show_piece(after);
    }
    first_ += piece_;
    return true;
  }

 private:
  [[nodiscard]] auto sources_of(Stretch share) const {
    return [this, share](std::uint32_t from) {
      return from == job_.rank ? input(share) : piece_shown(from, job_.rank, now());
    };
  }

  /// Shows the peers' shares of a piece.
  void show_piece(Stretch of) {
    for (std::uint32_t to = 0; to < job_.ranks; ++to) {
      const Stretch share = job_.share(to, of);
      if (to != job_.rank) job_.show(piece_shown(job_.rank, to, now() + 1), input(share), share.count);
    }
  }

  /// Copies take back lines that peers have read faster than sums do, so the sum is computed where only this rank
  /// reads; past the caches, where it would have to be read from memory, it goes to both.
  void sum() {
    const Stretch share = job_.share(job_.rank, piece(first_));
    if (share.count == 0) return;
    std::byte* const shown = sum_shown(job_.rank, now() + 1);
    std::byte* const to = job_.reads ? output(share) : shown;
    if (job_.streams) return job_.reduce_all_beside(to, share.count, sources_of(share), {.also = shown});
    job_.reduce_all(to, share.count, sources_of(share));
    job_.show(shown, to, share.count);
  }

  /// Copies the others' shares of a sum.
  void take(Stretch before) {
    for (std::uint32_t from = 0; from < job_.ranks; ++from) {
      const Stretch theirs = job_.share(from, before);
      if (from != job_.rank) job_.take(output(theirs), sum_shown(from, now()), theirs.count);
    }
  }

  /// Of two ranks, all three in one loop: the sum of this piece, past the caches, the peer's of the one `before`, and
  /// what the peer needs of the one `after`. More ranks are faster one by one: memory would be read in too many places
  /// (4 ranks, 32 MiB, ms: 8.2, and 10.7 in one loop).
  void at_once(Stretch before, Stretch after) {
    const std::uint32_t peer = 1 - job_.rank;
    const Beside::Move shown{piece_shown(job_.rank, peer, now() + 1), input(job_.share(peer, after))};
    const Beside::Move taken{output(job_.share(peer, before)), sum_shown(peer, now())};
    const Stretch share = job_.share(job_.rank, piece(first_));
    job_.reduce_all_beside(
        output(share), share.count, sources_of(share),
        {.also = sum_shown(job_.rank, now() + 1), .shown = std::span(&shown, 1), .taken = std::span(&taken, 1)});
  }
  /// Whether both ranks' shares of a piece are equally long.
  [[nodiscard]] bool even(Stretch of) const { return of.count == piece_ && 2 * job_.share(0, of).count == piece_; }

  /// Where what `from` contributes to the share of `to` is shown: a rank shows nothing to itself.
  [[nodiscard]] std::byte* piece_shown(std::uint32_t from, std::uint32_t to, std::uint64_t round) const {
    return turn_of(StagePart::pieces, from, round) + (to < from ? to : to - 1) * share_;
  }
  /// Where the rank's share of a sum is shown: behind that.
  [[nodiscard]] std::byte* sum_shown(std::uint32_t from, std::uint64_t round) const {
    return turn_of(StagePart::sums, from, round) + (job_.ranks - 1) * share_;
  }
  [[nodiscard]] std::byte* turn_of(StagePart part, std::uint32_t rank, std::uint64_t round) const {
    return turn(job_.rounds, part, rank, round, job_.ranks * share_);
  }
  [[nodiscard]] std::uint64_t now() const { return job_.rounds.round(); }
  [[nodiscard]] Stretch piece(std::size_t first) const {
    return {first, first < block_.elements ? std::min(piece_, block_.elements - first) : 0};
  }
  [[nodiscard]] const std::byte* input(Stretch range) const { return block_.input + range.first * job_.element_bytes; }
  [[nodiscard]] std::byte* output(Stretch range) const { return block_.output + range.first * job_.element_bytes; }

  SharedJob job_;
  Block block_;
  std::size_t piece_;      // elements
  std::size_t share_;      // of a whole piece, in bytes
  std::size_t first_ = 0;  // first element of this round's piece
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<SharedSteps> staged_steps(const SharedJob& job) {
  const std::size_t bytes = job.call.longest() * job.element_bytes;
  if (bytes >= kPage) job.rounds.provide(std::max(turn_bytes(job.ranks, bytes), piece_bytes(job.ranks)));
  if (shared_way(job.call.collective, job.ranks, bytes, false) == SharedWay::two_shot) {
    return std::make_unique<TwoShotSteps>(job);
  }
  return std::make_unique<ExchangeSteps>(job);
}

}  // namespace syntony
