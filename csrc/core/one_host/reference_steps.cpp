// Larger collectives read the peers' own buffers: nothing is copied only to be shown.
//
//     introduce  (once in a group)  show a number in one's own memory; can one read the others'?
//     offer                         show whether one could read all, and the addresses of one's buffers; then
//                                      copy what one needs from the peers' inputs, or sum one's share of them
//     collect    (shares)           copy what the others summed of an all_reduce, from their outputs
//     push       (instead, if all is registered and goes past the caches)  show whether one could map all buffers, and
//                                      sum one's share into the outputs of all: nothing is read or written twice
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
#include "core/process/log.hpp"
#include "core/shm/shareable_memory.hpp"
#include "core/sizes.hpp"

namespace syntony {
namespace {

constexpr std::size_t kReducedBytes = 256_KiB;  // of all ranks at a time, to stay in cache,
constexpr std::size_t kReducedOfRank = 128_KiB;
// Before others get a turn. Calls of the system for more bytes cost less of them (32 MiB, us: 3,500 in pieces of 256
// KiB, 3,250 at once).
constexpr std::size_t kCopiedBytes = 1_MiB;
// Of a share that is pushed (64 MiB by 2 ranks, ms, where each collects what the other has summed, and so: 5.5 and 4.6,
// where cores share no cache 4.3 and 3.0; a copy takes 4.6 and 2.8. In pieces of 128 KiB 4.7, of 2 MiB 4.8).
constexpr std::size_t kPushedBytes = 512_KiB;
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
  /// No peer writes into the output of a call that this rank has given up.
  ~ReferenceSteps() override {
    if (!exposed_) return;
    const Block& block = job_.block(0, job_.rank);
    if (!ShareableMemory::withdraw(block.output, block.elements * job_.element_bytes)) {
      log(LogLevel::warn, [&] {
        return "rank " + std::to_string(job_.rank) +
               ": no memory to replace the output of a failed all_reduce, which late peers may still write into";
      });
    }
  }
  ReferenceSteps(const ReferenceSteps&) = delete;
  ReferenceSteps& operator=(const ReferenceSteps&) = delete;

  [[nodiscard]] bool done() const override { return staged_ ? staged_->done() : phase_ == Phase::done; }
  [[nodiscard]] bool needs(std::uint32_t peer) const override { return staged_ ? staged_->needs(peer) : true; }

  void show() override {
    if (staged_) {
      staged_->show();
    } else if (phase_ == Phase::introduce) {
      as<PeerMemory::Proof>(line(job_.rounds.next())) = memory_.proof();
    } else if (phase_ == Phase::offer) {
      show_offer();
    } else if (phase_ == Phase::push) {
      exposed_ = map_all();
      as<Report>(line(job_.rounds.next())).failed = exposed_ ? 0 : 1;
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
        if (phase_ == Phase::push) return true;
        return job_.facts.reduces ? add() : copy_next();
      case Phase::collect:
        return copy_next();
      case Phase::push:
        return push();
      case Phase::close:
        close();
        return true;
      case Phase::done:
        break;
    }
    return true;
  }

 private:
  enum class Phase : std::uint8_t { introduce, offer, collect, push, close, done };

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
    if (shares_ && pushes()) {
      phase_ = Phase::push;
      for (std::uint32_t rank = 0; rank < job_.ranks; ++rank) offers_.push_back(offered_by(rank));
    }
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

  /// Whether each rank writes its share of an all_reduce to all outputs. Nobody else reads or writes what is there, so
  /// they may be inputs.
  [[nodiscard]] bool pushes() const {
    const std::size_t bytes = job_.block(0, job_.rank).elements * job_.element_bytes;
    bool all = job_.streams;
    for (std::uint32_t rank = 0; rank < job_.ranks; ++rank) {
      const Offered offered = offered_by(rank);
      all = all && offered.registered() && offered.output.bytes == bytes;
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
  [[nodiscard]] auto sources(Stretch part) {
    const std::size_t skipped = part.first * job_.element_bytes, bytes = part.count * job_.element_bytes;
    const std::byte* const own = job_.block(0, job_.rank).input + skipped;
    return [this, skipped, bytes, own](std::uint32_t from) -> const std::byte* {
      if (from == job_.rank) return own;
      const BufferAddress& theirs = input_of(from);
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
      job_.reduce_all(block.output + part.first * job_.element_bytes, count, sources(part),
                      job_.streams && block.output != block.input);
      at_ += count;
    }
    if (at_ < share.count) return false;
    phase_ = shares_ ? Phase::collect : Phase::close;
    if (shares_) plan_collection(block);
    return true;
  }

  /// Inputs by rank, and outputs, this rank's own first. False if the system refuses one.
  bool map_all() {
    const Block& own = job_.block(0, job_.rank);
    for (std::uint32_t rank = 0; rank < job_.ranks; ++rank) {
      inputs_.push_back(rank == job_.rank ? own.input : memory_.map(rank, offers_[rank].input));
    }
    outputs_.push_back(own.output);
    for (std::uint32_t step = 1; step < job_.ranks; ++step) {
      const std::uint32_t rank = (job_.rank + step) % job_.ranks;  // not all ranks write into the same one at once
      outputs_.push_back(memory_.map(rank, offers_[rank].output));
    }
    return std::ranges::find(inputs_, nullptr) == inputs_.end() &&
           std::ranges::find(outputs_, nullptr) == outputs_.end();
  }

  /// Sums a part of this rank's share into all outputs.
  bool push() {
    if (at_ == 0 && !all_mapped()) {
      exposed_ = false;
      staged_ = staged_steps(job_);
      return true;
    }
    const Stretch share = job_.share(job_.rank, {0, job_.block(0, job_.rank).elements});
    const Stretch part{share.first + at_, std::min(share.count - at_, kPushedBytes / job_.element_bytes)};
    if (part.count > 0) {
      const std::size_t skipped = part.first * job_.element_bytes;
      std::array<std::byte*, kMostRanksOfHost> outputs;
      std::ranges::transform(outputs_, outputs.begin(), [&](std::byte* output) { return output + skipped; });
      job_.reduce_all_beside(outputs.front(), part.count, [&](std::uint32_t rank) { return inputs_[rank] + skipped; },
                             {.too = std::span(outputs).subspan(1, job_.ranks - 1)});
      at_ += part.count;
    }
    if (at_ < share.count) return false;
    phase_ = Phase::close;
    return true;
  }

  [[nodiscard]] bool all_mapped() const {
    bool all = true;
    for (std::uint32_t rank = 0; rank < job_.ranks; ++rank) {
      all = all && as<Report>(line(job_.rounds.buffer(rank))).failed == 0;
    }
    return all;
  }

  [[noreturn]] void unreadable(std::uint32_t rank) const {
    throw Error(Error::Kind::system,
                system_sentence("rank " + std::to_string(job_.rank) + " cannot read the memory of rank " +
                                std::to_string(rank)),
                {static_cast<int>(rank)});
  }

  /// What the others have summed is copied from their outputs.
  void plan_collection(const Block& block) {
    for (std::uint32_t step = 1; step < job_.ranks; ++step) {
      const std::uint32_t from = (job_.rank + step) % job_.ranks;
      const Stretch part = job_.share(from, {0, block.elements});
      const std::size_t skipped = part.first * job_.element_bytes;
      BufferAddress output = beside(job_.rounds.buffer(from), 0);
      output.address += skipped;
      output.offset += skipped;
      output.bytes -= skipped;
      copies_.push_back({from, output, block.output + skipped, part.count});
    }
    at_ = 0;
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
    exposed_ = false;
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
  // If sums are pushed: what was offered, which is gone after its round, and where it is mapped.
  std::vector<Offered> offers_;
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> outputs_;
  bool exposed_ = false;  // peers may write into this rank's output
  std::size_t next_ = 0;  // copy
  std::size_t at_ = 0;    // current element of it, or of the share that is summed
};

}  // namespace

std::unique_ptr<SharedSteps> reference_steps(const SharedJob& job) { return std::make_unique<ReferenceSteps>(job); }

}  // namespace syntony
