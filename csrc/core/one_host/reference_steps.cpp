// Large collectives read the peers' own buffers: nothing is copied only to be shown.
//
//      introduce  (once in a group)  show a number in one's own memory; can one read the others'?
//      offer                         show whether one could read all, and where one's buffers lie; then
//                                       copy what one needs from the peers' inputs, or add up one's share of them
//      collect    (all_reduce)       copy the shares that the others added up, from their outputs
//      close                         nothing to read: the peers no longer need one's buffers
//
// Where some rank cannot read some other's memory, or where a buffer is such that nobody can, the offer says so, and
// all take the steps through copies instead. What lies in registered memory is mapped and read in place, the rest is
// read by the system (peer_memory.hpp).
#include <algorithm>
#include <span>
#include <vector>

#include "core/one_host/shared_job.hpp"
#include "core/one_host/shared_steps.hpp"

namespace syntony {
namespace {

constexpr std::size_t kReducedBytes = std::size_t{64} << 10U;  // of each rank at a time: they shall stay in cache
constexpr std::size_t kCopiedBytes = std::size_t{256} << 10U;  // before others get in
static_assert(kMostRanksOfHost * sizeof(BufferAddress) + kCacheLine <= StageBuffer::kStageBytes);

struct Offer {
  std::uint32_t reads_all = 0;  // whether this rank can read all others' memory,
  std::uint32_t readable = 0;   // and whether what it offers can be read
  BufferAddress output;
};

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
      as<PeerMemory::Proof>(stage(job_.rounds.next())) = memory_.proof();
    } else if (phase_ == Phase::offer) {
      show_offer();
    }
  }

  bool read() override {
    if (staged_) return staged_->read();
    switch (phase_) {
      case Phase::introduce:
        phase_ = Phase::offer;
        for (std::uint32_t peer = 0; peer < job_.ranks; ++peer) {
          reads_all_ = reads_all_ && memory_.convinced(peer, as<PeerMemory::Proof>(stage(job_.rounds.buffer(peer))));
        }
        return true;
      case Phase::offer:
        if (!agreed_ && !agree()) return true;
        agreed_ = true;
        return job_.facts.reduces ? add() : copy_next();
      case Phase::collect:
        return copy_next();
      case Phase::close:
      case Phase::done:
        break;
    }
    phase_ = Phase::done;
    return true;
  }

 private:
  enum class Phase : std::uint8_t { introduce, offer, collect, close, done };

  /// Elements to copy from a peer's buffer, or from one's own.
  struct Copy {
    std::uint32_t from;
    BufferAddress source;
    std::byte* to;
    std::size_t elements;
    const std::byte* own = nullptr;  // instead of `source`
  };

  static std::byte* stage(StageBuffer& buffer) { return buffer.stage.data(); }
  template <typename Plain>
  static Plain& as(std::byte* memory) {
    return *reinterpret_cast<Plain*>(memory);
  }
  [[nodiscard]] const Offer& offer_of(std::uint32_t rank) const { return as<Offer>(stage(job_.rounds.buffer(rank))); }
  /// In an offer: where the block for `to` lies.
  static BufferAddress& input_in(StageBuffer& buffer, std::uint32_t to) {
    return as<BufferAddress>(stage(buffer) + 2 * kCacheLine + to * sizeof(BufferAddress));
  }

  void show_offer() {
    StageBuffer& buffer = job_.rounds.next();
    auto& offer = as<Offer>(stage(buffer));
    offer = {reads_all_ && memory_.open_to_all.value_or(true) ? 1U : 0U, 1, {}};
    if (job_.call.collective == Collective::all_reduce)
      offer.output = address_of(job_.call.blocks[0].output, job_.call.blocks[0]);
    const std::uint32_t inputs = job_.shows ? job_.destinations : 0;
    for (std::uint32_t to = 0; to < inputs; ++to) {
      const Block& block = job_.block(job_.rank, to);
      input_in(buffer, to) = address_of(block.input, block);
    }
    if (offer.reads_all == 0) return;
    const bool readable = PeerMemory::readable(std::span(&offer.output, 1)) &&
                          PeerMemory::readable(std::span(&input_in(buffer, 0), inputs));
    offer.readable = readable ? 1 : 0;
  }

  [[nodiscard]] BufferAddress address_of(const std::byte* data, const Block& block) const {
    return PeerMemory::address_of(data, block.elements * job_.element_bytes);
  }

  /// What the offers mean: true when buffers are read from here on, false when these steps end with their round.
  bool agree() {
    bool all = true, readable = true;
    for (std::uint32_t rank = 0; rank < job_.ranks; ++rank) {
      all = all && offer_of(rank).reads_all != 0;
      readable = readable && offer_of(rank).readable != 0;
    }
    memory_.open_to_all = all;
    if (!all || !readable) {
      staged_ = staged_steps(job_);
      return false;
    }
    for (std::uint32_t from = 0; from < job_.ranks; ++from) check_length(from);
    if (!job_.facts.reduces) plan_copies();
    return true;
  }

  [[nodiscard]] BufferAddress& input_of(std::uint32_t from) const {
    return input_in(job_.rounds.buffer(from), job_.facts.by_destination ? job_.rank : 0);
  }

  /// Counts are in the fingerprint, so this holds; but nobody reads beyond another's buffer, whatever was called.
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
      const std::uint32_t from = (job_.rank + step) % job_.ranks;  // not all from the same rank at once
      if (!job_.reads_from(from)) continue;
      const Block& block = job_.block(from, job_.rank);
      if (from == job_.rank) {
        if (block.output != block.input) copies_.push_back({from, {}, block.output, block.elements, block.input});
      } else {
        copies_.push_back({from, input_of(from), block.output, block.elements});
      }
    }
  }

  /// One part of this rank's share of the sum, or of its block of a reduce_scatter.
  bool add() {
    const Block& block = job_.block(0, job_.rank);
    const bool shared = job_.call.collective == Collective::all_reduce;
    const Stretch share = shared ? job_.share(job_.rank, {0, block.elements}) : Stretch{0, block.elements};
    const std::size_t count = std::min(share.count - at_, kReducedBytes / job_.element_bytes);
    if (count > 0) {
      const std::size_t first = share.first + at_;
      const std::size_t bytes = count * job_.element_bytes;
      const std::span<std::byte> room = memory_.room(job_.ranks * kReducedBytes);
      job_.reduce_all(block.output + first * job_.element_bytes, count, [&](std::uint32_t from) {
        if (from == job_.rank) return block.input + first * job_.element_bytes;
        const BufferAddress& source = input_of(from);
        const std::size_t skipped = first * job_.element_bytes;
        if (const std::byte* mapped = memory_.map(from, source)) return mapped + skipped;
        std::byte* const read = room.data() + from * kReducedBytes;
        memory_.read(from, read, source.address + skipped, bytes);
        return static_cast<const std::byte*>(read);
      });
      at_ += count;
    }
    if (at_ < share.count) return false;
    phase_ = shared ? Phase::collect : Phase::close;
    if (shared) plan_collection(block);
    return true;
  }

  void plan_collection(const Block& block) {
    for (std::uint32_t step = 1; step < job_.ranks; ++step) {
      const std::uint32_t from = (job_.rank + step) % job_.ranks;
      const Stretch share = job_.share(from, {0, block.elements});
      const std::size_t skipped = share.first * job_.element_bytes;
      BufferAddress source = offer_of(from).output;
      source.address += skipped;
      source.offset += skipped;
      copies_.push_back({from, source, block.output + skipped, share.count});
    }
    at_ = 0;
  }

  /// One part of what is to be copied.
  bool copy_next() {
    if (next_ < copies_.size()) {
      const Copy& copy = copies_[next_];
      const std::size_t count = std::min(copy.elements - at_, kCopiedBytes / job_.element_bytes);
      const std::size_t skipped = at_ * job_.element_bytes;
      const std::byte* const mapped = copy.own != nullptr ? copy.own : memory_.map(copy.from, copy.source);
      if (mapped != nullptr) {
        job_.copy(copy.to + skipped, mapped + skipped, count);
      } else {
        memory_.read(copy.from, copy.to + skipped, copy.source.address + skipped, count * job_.element_bytes);
      }
      at_ += count;
      if (at_ == copy.elements) {
        ++next_;
        at_ = 0;
      }
    }
    if (next_ < copies_.size()) return false;
    phase_ = Phase::close;
    return true;
  }

  SharedJob job_;
  PeerMemory& memory_;
  Phase phase_ = Phase::offer;
  bool reads_all_ = true;
  bool agreed_ = false;
  std::unique_ptr<SharedSteps> staged_;  // instead, when buffers cannot be read
  std::vector<Copy> copies_;
  std::size_t next_ = 0;  // copy
  std::size_t at_ = 0;    // element of it, or of the share that is added up
};

}  // namespace

std::unique_ptr<SharedSteps> reference_steps(const SharedJob& job) { return std::make_unique<ReferenceSteps>(job); }

}  // namespace syntony
