// How the ranks of one host show each other bytes without a queue between them: in rounds.
//
// Every priority (priority.hpp) has SharedRounds of its own, in which every rank has two stage buffers, used
// alternately. Round k of a rank:
//
//     1. once all peers have published round k-1     (nobody reads buffer k mod 2 any more: that was round k-2)
//     2. write into buffer k mod 2, publish k        (one store; the fingerprint and up to 48 bytes share its line)
//     3. once the ranks it reads from published k    read their buffers
//
//      buffer 0  | stamp fingerprint 48 bytes |  stage .. |      stamp: the round published here last
//      buffer 1  | stamp fingerprint 48 bytes |  stage .. |      (shm_segment.hpp, StageBuffer)
//
// A collective is a few rounds (shared_operation.hpp); all ranks go through the same rounds in the same order, because
// they run the same collectives of a priority in the same order. (Once all peers have published k, condition 1 holds
// for round k+1: results of round k may be written where round k+1 shows them.)
//
// Used only by the group's owner of progress; nothing here blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

#include "core/one_host/agreed_way.hpp"
#include "core/one_host/peer_memory.hpp"
#include "core/shm/peer_reads.hpp"
#include "core/shm/shm_segment.hpp"
#include "core/shm/shm_transport.hpp"
#include "core/shm/shown_copy.hpp"

namespace syntony {

/// A peer shows data for another operation than this rank's; the control plane knows which.
struct SharedMismatch : std::exception {
  SharedMismatch(std::uint32_t rank, Priority its_priority, std::uint64_t number)
      : peer(rank), priority(its_priority), sequence(number) {}
  [[nodiscard]] const char* what() const noexcept override { return "a peer is in another operation"; }
  std::uint32_t peer;
  Priority priority;       // of this rank's operation,
  std::uint64_t sequence;  // and its number within that priority
};

/// The operation that a round belongs to, which peers compare.
struct Stamp {
  std::uint64_t sequence = 0;
  std::uint64_t fingerprint = 0;
};

/// What a stage holds: pieces of what ranks contribute, and behind those their shares of sums.
enum class StagePart : std::uint8_t { pieces, sums };

class SharedRounds {
 public:
  /// `segment` must hold all ranks of the group; `transport` wakes them. Both must outlive this. `processes`: by rank.
  /// `looks`: how often arrived() checks a peer's line. `swaps`: two ranks swap their stages.
  SharedRounds(const ShmSegment& segment, ShmTransport& transport, std::uint32_t rank, std::vector<pid_t> processes,
               Priority priority, unsigned looks = 1, bool swaps = false);
  /// Number of checks that cover the time in which a peer's latest write travels between cores, about 100 ns: less than
  /// a turn of the progress engine, which would find it late. Do not use it if peers need the core to write.
  static constexpr unsigned kTravels = 100;

  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t ranks() const { return static_cast<std::uint32_t>(seen_.size()); }

  /// The last round that this rank has published.
  [[nodiscard]] std::uint64_t round() const { return round_; }
  /// True if `peer` has published the round that this rank published last. Throws SharedMismatch if it did so for
  /// another operation.
  [[nodiscard]] bool arrived(std::uint32_t peer);
  [[nodiscard]] bool published(std::uint32_t peer) const;  // the same, without comparing operations
  /// True if all peers have, so that next() may be written.
  [[nodiscard]] bool all_arrived();
  /// Peers have read next(): fetches its line, so that it can be written as soon as there is something to show.
  void fetch_next() const;
  /// This rank's buffer for the next round.
  [[nodiscard]] StageBuffer& next();
  /// All ranks show something in that part of their stages in the next round.
  void use_next(StagePart part) { ++uses_[static_cast<std::size_t>(part)][(round_ + 1) % 2]; }
  /// How often those that `round` uses have been used before.
  [[nodiscard]] std::uint64_t uses(StagePart part, std::uint64_t round) const {
    return uses_[static_cast<std::size_t>(part)][round % 2] - 1;
  }
  /// The stage in which `rank` shows that part of `round`. If two ranks swap theirs whenever they use a part again,
  /// each writes what it has read itself:
  ///
  ///     round             0 1   2 3   4 5   ...
  ///     rank 0 writes     a b   c d   a b            c d: where rank 1 wrote in rounds 0 and 1
  ///     rank 1 writes     c d   a b   c d
  ///
  /// Peers have finished with all of these once they have arrived in the round before.
  [[nodiscard]] StageBuffer& stage(StagePart part, std::uint32_t rank, std::uint64_t round) const;
  /// Has the system provide the first `bytes` of this rank's stages now, which it would do page by page as they are
  /// written: 512 pages take 0.2 ms together, and 3 one by one. Those of a peer are mapped when it has arrived.
  void provide(std::size_t bytes);
  /// Makes what was written visible to the peers.
  void publish(const Stamp& operation);
  /// What `rank` wrote for the round that this rank published last. Valid until this rank publishes the next round.
  [[nodiscard]] StageBuffer& buffer(std::uint32_t rank) const;
  /// The one of `rank` that `round` uses; the round before it uses another.
  [[nodiscard]] StageBuffer& buffer(std::uint32_t rank, std::uint64_t round) const;

  [[nodiscard]] PeerMemory& memory() { return memory_; }
  [[nodiscard]] AgreedWays& ways() { return ways_; }
  /// Copies into next().
  [[nodiscard]] ShownCopy& shown_copy() { return shown_copy_; }
  [[nodiscard]] PeerReads& peer_reads() { return peer_reads_; }

  /// Operations run one after another, in the order in which they entered.
  [[nodiscard]] std::uint64_t enter() { return ++entered_; }
  [[nodiscard]] bool is_next(std::uint64_t ticket) const { return ticket == left_ + 1; }
  void leave() { ++left_; }

 private:
  /// Maps what the peer has provided, so that reading it for the first time takes no longer than later. Not before it
  /// has: pages that two ranks provide by turns are read more slowly ever after (256 KiB 12.3 instead of 10.3 us).
  void map(std::uint32_t peer);
  void populate(std::uint32_t rank, std::size_t bytes, int how);

  ShmTransport& transport_;
  std::vector<std::array<StageBuffer*, 2>> buffers_;  // by rank
  unsigned looks_;
  bool swaps_;
  std::uint32_t rank_;
  Priority priority_;
  std::uint64_t round_ = 0;                             // the last round that this rank has published,
  Stamp stamp_;                                         // and the operation it belonged to
  std::array<std::array<std::uint64_t, 2>, 2> uses_{};  // by part and stage
  std::vector<std::size_t> provided_;                   // by rank: bytes of each of its stages that are mapped here
  std::vector<std::uint64_t> seen_;                     // by rank: the latest published round that was seen
  PeerMemory memory_;
  AgreedWays ways_;
  ShownCopy shown_copy_;
  PeerReads peer_reads_;
  std::uint64_t entered_ = 0;
  std::uint64_t left_ = 0;
};

}  // namespace syntony
