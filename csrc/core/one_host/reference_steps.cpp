// Larger collectives read the peers' own buffers: nothing is copied only to be shown.
//
//     introduce  (once in a group)  show a number in one's own memory; can one read the others'?
//     offer                         show whether one could read all, and the addresses of one's buffers; then
//                                      copy what one needs from the peers' inputs, or sum one's share of them
//     collect    (shares)           copy what the others summed of an all_reduce, from their outputs
//     relay      (instead, if all is registered and goes past the caches)  the same, piece by piece: sum one's share
//                                      of a piece, and copy what the others summed of the piece before
//     close                         show whether one could read what one needed; the peers are done with one's buffers
//
// If some rank cannot read another's memory, the offer says so, and all ranks copy through stages instead. A particular
// buffer may be unreadable for everybody (device memory, secret memory). Pure moves are tried; if one fails, everything
// is copied through stages from the start, because nothing still needed was overwritten. A sum may overwrite its own
// input, so the owner checks its buffers beforehand. Registered memory is mapped and read in place, the rest is read by
// the system (peer_memory.hpp): a move straight into the output, for copies that bypass the caches after it cost more
// than they save (all_to_all of 16 MiB by 2 ranks 680 instead of 560 us, of 64 MiB 3,460 instead of 3,080).
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "core/one_host/shared_job.hpp"
#include "core/one_host/shared_steps.hpp"
#include "core/process/host.hpp"
#include "core/sizes.hpp"

namespace syntony {
namespace {

constexpr std::size_t kReducedBytes = 256_KiB;  // of all ranks at a time, to stay in cache,
constexpr std::size_t kReducedOfRank = 128_KiB;
// Before others get a turn. Calls of the system for more bytes cost less of them (32 MiB, us: 3,500 in pieces of 256
// KiB, 3,250 at once).
constexpr std::size_t kCopiedBytes = 1_MiB;
// Of a piece that is relayed: the sum of one share and copies of the others are one loop (64 MiB by 2 ranks, ms, where
// every rank would sum everything, and so: 5.3 and 5.5, where cores share no cache 4.9 and 3.5; a copy takes 4.4 and
// 2.6. In pieces of 256 KiB 5.7 and 3.6).
constexpr std::size_t kRelayedBytes = 2_MiB;
static_assert(kMostRanksOfHost * sizeof(BufferAddress) <= StageBuffer::kStageBytes);

struct Offer {
  std::uint32_t reads_all = 0;  // whether this rank can read all others' memory,
  std::uint32_t readable = 0;   // and whether its offered buffers can be read, as far as checked
  BufferAddress buffer;         // its input, if all peers read the same; else the stage has one for each
};
struct Report {
  std::uint32_t failed = 0;
};
static_assert(sizeof(Offer) <= StageBuffer::kInlineBytes);

class ReferenceSteps final : public SharedSteps {
 public:
  explicit ReferenceSteps(const SharedJob& job) : job_(job), memory_(job.rounds.memory()) {
    if (!memory_.open_to_all) phase_ = Phase::introduce;
    memory_.trim();
  }

  [[nodiscard]] bool done() const override { return staged_ ? staged_->done() : phase_ == Phase::done; }
  [[nodiscard]] bool needs(std::uint32_t peer) const override { return staged_ ? staged_->needs(peer) : true; }

  void show() override {
    if (staged_) {
      staged_->show();
    } else if (phase_ == Phase::introduce) {
      as<PeerMemory::Proof>(line(job_.rounds.next())) = memory_.proof();
    } else if (phase_ == Phase::offer) {
      show_offer();
    } else if (phase_ == Phase::close) {
      as<Report>(line(job_.rounds.next())).failed = failed_ ? 1 : 0;
    }
  }

  void meanwhile() override {
    if (staged_) staged_->meanwhile();
  }

  bool read() override {
    if (staged_) return staged_->read();
    switch (phase_) {
      case Phase::introduce:
        phase_ = Phase::offer;
        for (std::uint32_t peer = 0; peer < job_.ranks; ++peer) {
          reads_all_ = reads_all_ && memory_.convinced(peer, as<PeerMemory::Proof>(line(job_.rounds.buffer(peer))));
        }
        return true;
      case Phase::offer:
        if (!agreed_ && !agree()) return true;
        agreed_ = true;
        if (phase_ != Phase::relay) return job_.facts.reduces ? add() : copy_next();
        relay();
        return true;
      case Phase::collect:
        return copy_next();
      case Phase::relay:
        relay();
        return true;
      case Phase::close:
        close();
        return true;
      case Phase::done:
        break;
    }
    return true;
  }

 private:
  enum class Phase : std::uint8_t { introduce, offer, collect, relay, close, done };

  /// Elements to copy from a peer's buffer, or from one's own.
  struct Copy {
    std::uint32_t from;
    BufferAddress source;
    std::byte* to;
    std::size_t elements;
    const std::byte* own = nullptr;  // instead of `source`
  };

  static std::byte* line(StageBuffer& buffer) { return buffer.inlined.data(); }
  template <typename Plain>
  static Plain& as(std::byte* memory) {
    return *reinterpret_cast<Plain*>(memory);
  }
  [[nodiscard]] const Offer& offer_of(std::uint32_t rank) const { return as<Offer>(line(job_.rounds.buffer(rank))); }
  /// Stored next to an offer: the buffer for `to`, or the output of an all_reduce.
  static BufferAddress& beside(StageBuffer& buffer, std::uint32_t to) {
    return as<BufferAddress>(buffer.stage.data() + to * sizeof(BufferAddress));
  }

  void show_offer() {
    StageBuffer& buffer = job_.rounds.next();
    auto& offer = as<Offer>(line(buffer));
    offer = {reads_all_ && memory_.open_to_all.value_or(true) ? 1U : 0U, 1, {}};
    std::uint32_t others = 0;
    if (job_.facts.by_destination) {
      others = job_.shows ? job_.destinations : 0;
      for (std::uint32_t to = 0; to < others; ++to) {
        const Block& block = job_.block(job_.rank, to);
        beside(buffer, to) = address_of(block.input, block);
      }
    } else if (job_.shows) {
      const Block& block = job_.block(job_.rank, 0);
      offer.buffer = address_of(block.input, block);
      if (job_.facts.reduces) beside(buffer, others++) = address_of(block.output, block);
    }
    if (offer.reads_all == 0 || !job_.facts.reduces) return;
    const bool readable = PeerMemory::readable(std::span(&offer.buffer, 1)) &&
                          PeerMemory::readable(std::span(&beside(buffer, 0), others));
    offer.readable = readable ? 1 : 0;
  }

  [[nodiscard]] BufferAddress address_of(const std::byte* data, const Block& block) const {
    return PeerMemory::address_of(data, block.elements * job_.element_bytes);
  }

  /// Evaluates the offers: true if buffers are read from here on, false if these steps end with their round.
  bool agree() {
    bool all = true, readable = true;
    for (std::uint32_t rank = 0; rank < job_.ranks; ++rank) {
      all = all && offer_of(rank).reads_all != 0;
      readable = readable && offer_of(rank).readable != 0;
    }
    memory_.open_to_all = all;
    if (!all || !readable || copies_instead()) {
      staged_ = staged_steps(job_);
      return false;
    }
    for (std::uint32_t from = 0; from < job_.ranks; ++from) check_length(from);
    if (!job_.facts.reduces) plan_copies();
    shares_ = job_.call.collective == Collective::all_reduce;
    if (shares_ && relays()) plan_relay();
    return true;
  }

  [[nodiscard]] const BufferAddress& input_of(std::uint32_t from) const {
    return job_.facts.by_destination ? beside(job_.rounds.buffer(from), job_.rank) : offer_of(from).buffer;
  }

  /// The buffers of a rank's sum.
  struct Offered {
    BufferAddress input, output;
    [[nodiscard]] bool in_place() const { return input.address == output.address; }
    [[nodiscard]] bool registered() const { return input.piece != 0 && output.piece != 0; }
  };
  [[nodiscard]] Offered offered_by(std::uint32_t rank) const {
    return {offer_of(rank).buffer, beside(job_.rounds.buffer(rank), 0)};
  }

  /// Whether an all_reduce is relayed. No input may be overwritten meanwhile.
  [[nodiscard]] bool relays() const {
    bool all = job_.streams;
    for (std::uint32_t rank = 0; rank < job_.ranks; ++rank) {
      all = all && offered_by(rank).registered() && !offered_by(rank).in_place();
    }
    return all;
  }

  /// Whether an all_reduce goes through stages though everything can be read: past the caches, what the system has read
  /// is slower to sum than copies are (64 MiB by 2 and 4 ranks of an Intel Xeon, ms: 13.4 and 10, 36.7 and 28.5).
  [[nodiscard]] bool copies_instead() const {
    if (!job_.streams || job_.call.collective != Collective::all_reduce) return false;
    for (std::uint32_t rank = 0; rank < job_.ranks; ++rank) {
      if (!offered_by(rank).registered() && !offered_by(rank).in_place()) return true;
    }
    return false;
  }

  /// Counts are part of the fingerprint, so this holds; but no rank ever reads beyond another's buffer, whatever was
  /// called.
  void check_length(std::uint32_t from) const {
    if (from == job_.rank || !job_.reads_from(from)) return;
    const std::uint64_t expected = job_.block(from, job_.rank).elements * job_.element_bytes;
    const std::uint64_t brought = input_of(from).bytes;
    if (brought == expected) return;
    throw Error(Error::Kind::mismatch,
                "rank " + std::to_string(from) + " and rank " + std::to_string(job_.rank) +
                    " disagree about element counts: in " + std::string(name_of(job_.call.collective)) + " rank " +
                    std::to_string(job_.rank) + " expects " + std::to_string(expected / job_.element_bytes) +
                    " elements of rank " + std::to_string(from) + ", which brings " +
                    std::to_string(brought / job_.element_bytes),
                {static_cast<int>(from), static_cast<int>(job_.rank)});
  }

  void plan_copies() {
    for (std::uint32_t step = 0; step < job_.ranks; ++step) {
      const std::uint32_t from = (job_.rank + step) % job_.ranks;  // not all ranks read from the same one at once
      if (!job_.reads_from(from)) continue;
      const Block& block = job_.block(from, job_.rank);
      if (from != job_.rank) {
        copies_.push_back({from, input_of(from), block.output, block.elements});
      } else if (block.output != block.input) {
        copies_.push_back({from, {}, block.output, block.elements, block.input});
      }
    }
  }

  /// Where a part of every rank's input is, by rank: mapped, or read into this rank's room.
  template <typename Input>
  [[nodiscard]] auto sources(Stretch part, const Input& input) {
    const std::size_t skipped = part.first * job_.element_bytes, bytes = part.count * job_.element_bytes;
    const std::byte* const own = job_.block(0, job_.rank).input + skipped;
    return [this, skipped, bytes, own, input](std::uint32_t from) -> const std::byte* {
      if (from == job_.rank) return own;
      const BufferAddress theirs = input(from);
      if (const std::byte* mapped = memory_.map(from, theirs)) return mapped + skipped;
      std::byte* const read = memory_.room(job_.ranks * bytes).data() + from * bytes;
      if (!memory_.read(from, read, theirs.address + skipped, bytes)) unreadable(from);
      return read;
    };
  }

  /// Sums one part of this rank's share, or of its block of a reduce_scatter.
  bool add() {
    const Block& block = job_.block(0, job_.rank);
    const Stretch share = shares_ ? job_.share(job_.rank, {0, block.elements}) : Stretch{0, block.elements};
    const std::size_t most = std::min(kReducedOfRank, kReducedBytes / job_.ranks) / kCacheLine * kCacheLine;
    const std::size_t count = std::min(share.count - at_, std::max(most, kCacheLine) / job_.element_bytes);
    if (count > 0) {
      const Stretch part{share.first + at_, count};
      const auto input = [&](std::uint32_t from) { return input_of(from); };
      job_.reduce_all(block.output + part.first * job_.element_bytes, count, sources(part, input),
                      job_.streams && block.output != block.input);
      at_ += count;
    }
    if (at_ < share.count) return false;
    phase_ = shares_ ? Phase::collect : Phase::close;
    if (shares_) plan_collection(block);
    return true;
  }

  /// Offers are gone after their round.
  void plan_relay() {
    phase_ = Phase::relay;
    for (std::uint32_t rank = 0; rank < job_.ranks; ++rank) {
      inputs_.push_back(offered_by(rank).input);
      outputs_.push_back(offered_by(rank).output);
    }
  }

  /// Sums this rank's share of a piece, and copies the others' of the one before.
  void relay() {
    const Block& block = job_.block(0, job_.rank);
    const std::size_t piece = kRelayedBytes / job_.element_bytes;
    const auto share = [&](std::uint32_t of, std::size_t first) {
      return job_.share(of, {first, std::min(piece, block.elements - std::min(block.elements, first))});
    };
    const Stretch mine = share(job_.rank, at_);
    std::array<Beside::Move, kMostRanksOfHost> taken;
    std::size_t moves = 0;
    for (std::uint32_t step = 1; step < job_.ranks && at_ > 0; ++step) {
      const std::uint32_t from = (job_.rank + step) % job_.ranks;
      const Stretch theirs = share(from, at_ - piece);
      const Copy copy = share_of(from, outputs_[from], block, theirs);
      const std::byte* const mapped = memory_.map(from, copy.source);
      if (mapped != nullptr && theirs.count == mine.count) {
        taken[moves++] = {copy.to, mapped};
      } else if (!copied(copy, 0, theirs.count * job_.element_bytes)) {
        unreadable(from);
      }
    }
    const Beside beside{.taken = std::span(taken).first(moves)};
    if (mine.count > 0) {
      const auto input = [&](std::uint32_t rank) { return inputs_[rank]; };
      job_.reduce_all_beside(block.output + mine.first * job_.element_bytes, mine.count, sources(mine, input), beside);
    }
    if (at_ >= block.elements) phase_ = Phase::close;
    at_ += piece;
  }

  [[noreturn]] void unreadable(std::uint32_t rank) const {
    throw Error(Error::Kind::system,
                system_sentence("rank " + std::to_string(job_.rank) + " cannot read the memory of rank " +
                                std::to_string(rank)),
                {static_cast<int>(rank)});
  }

  void plan_collection(const Block& block) {
    for (std::uint32_t step = 1; step < job_.ranks; ++step) {
      const std::uint32_t from = (job_.rank + step) % job_.ranks;
      copies_.push_back(
          share_of(from, beside(job_.rounds.buffer(from), 0), block, job_.share(from, {0, block.elements})));
    }
    at_ = 0;
  }

  /// The copy of a part of what `from` has summed.
  [[nodiscard]] Copy share_of(std::uint32_t from, BufferAddress output, const Block& block, Stretch part) const {
    const std::size_t skipped = part.first * job_.element_bytes;
    output.address += skipped;
    output.offset += skipped;
    return {from, output, block.output + skipped, part.count};
  }

  /// Copies one part of what is to be copied.
  bool copy_next() {
    if (next_ < copies_.size()) {
      const Copy& copy = copies_[next_];
      const std::size_t count = std::min(copy.elements - at_, kCopiedBytes / job_.element_bytes);
      failed_ = !copied(copy, at_ * job_.element_bytes, count * job_.element_bytes);
      if (failed_ && phase_ == Phase::collect) unreadable(copy.from);
      at_ += count;
      if (at_ == copy.elements || failed_) {
        ++next_;
        at_ = 0;
      }
    }
    if (next_ < copies_.size() && !failed_) return false;
    phase_ = Phase::close;
    return true;
  }

  [[nodiscard]] bool copied(const Copy& copy, std::size_t skipped, std::size_t bytes) {
    std::byte* const to = copy.to + skipped;
    const std::byte* const from = copy.own != nullptr ? copy.own : memory_.map(copy.from, copy.source);
    if (from == nullptr) return memory_.read(copy.from, to, copy.source.address + skipped, bytes);
    if (job_.streams) {
      streaming_copy(to, from + skipped, bytes);
    } else {
      vector_copy(to, from + skipped, bytes);
    }
    return true;
  }

  void close() {
    phase_ = Phase::done;
    for (std::uint32_t rank = 0; rank < job_.ranks; ++rank) {
      if (as<Report>(line(job_.rounds.buffer(rank))).failed != 0) {
        staged_ = staged_steps(job_);
        return;
      }
    }
  }

  SharedJob job_;
  PeerMemory& memory_;
  Phase phase_ = Phase::offer;
  bool reads_all_ = true;
  bool agreed_ = false;
  bool shares_ = false;                  // each rank sums a part, and collects the others
  bool failed_ = false;                  // to read data that is only to be moved
  std::unique_ptr<SharedSteps> staged_;  // used instead if something cannot be read
  std::vector<Copy> copies_;
  std::vector<BufferAddress> inputs_, outputs_;  // by rank, if relayed
  std::size_t next_ = 0;                         // copy
  std::size_t at_ = 0;                           // current element of it, or of the share that is summed
};

}  // namespace

std::unique_ptr<SharedSteps> reference_steps(const SharedJob& job) { return std::make_unique<ReferenceSteps>(job); }

}  // namespace syntony
