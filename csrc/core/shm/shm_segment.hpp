// The memory that the ranks of one host share for one group: a memfd, which has no name in any file system, so nothing
// is left behind however a process ends.
//
//      +--------+---------------------------+--------------------------------------------------------------+
//      | abort  | BoardLine, posts, stages  | streams: [destination][source][channel][window]              |
//      |        | per rank                  | each: | released | (stamp, header) payload | .. depth slots  |
//      +--------+---------------------------+--------------------------------------------------------------+
//
// The file is sparse: a connection that is never used never costs a page. The host's lowest rank creates it and passes
// it to the others over a Unix socket. Both sides learn from the kernel (SO_PEERCRED) which process is at the other
// end, so no rank tells a stranger anything or waits for one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/atomic.hpp"
#include "core/control.hpp"
#include "core/process/unique_fd.hpp"
#include "core/shm/doorbell.hpp"
#include "core/sizes.hpp"
#include "core/transport.hpp"

namespace syntony {

inline constexpr std::size_t kRememberedOperations = 16;
inline constexpr std::size_t kMostRanksOfHost = 252;

/// How far a rank has come with the operations of one priority.
struct alignas(kCacheLine) BoardProgress {
  Atomic<std::uint64_t> completed;
  Atomic<std::uint64_t> started;  // sequence; its Descriptor is remembered[started % kRememberedOperations]
  alignas(kCacheLine) std::array<RacingBytes<sizeof(Descriptor)>, kRememberedOperations> remembered;
};

/// What a rank tells the others on its host. Written only by that rank; padded against false sharing.
struct alignas(2 * kCacheLine) BoardLine {
  std::array<BoardProgress, kPriorities> progress;
  alignas(kCacheLine) Atomic<std::uint32_t> left;
  alignas(kCacheLine) Atomic<std::uint32_t> sleeping;
  Atomic<std::uint32_t> cpu;  // CPU on which it last waited, + 1; 0: not known
};

/// Why the group ended. `state` goes 0 -> 1 (being written) -> 2 (readable).
struct alignas(2 * kCacheLine) AbortRecord {
  struct Reason {
    std::uint32_t kind;
    std::uint32_t rank_count;
    std::array<std::int32_t, 64> ranks;
    std::array<char, 1024> sentence;
  };
  Atomic<std::uint32_t> state;
  Published<Reason> reason;
};

/// A message posted for the others (ControlPlane::post). `number` is written last; 0 means nothing yet.
struct alignas(kCacheLine) Post {
  Atomic<std::uint64_t> number;
  Atomic<std::uint32_t> length;
  RacingBytes<kLongestPost> text;
};

/// The first cache line of a slot. `stamp` is the number of the frame in the slot, counted from 1; the source writes it
/// last to publish the frame.
struct alignas(kCacheLine) SlotLine {
  Atomic<std::uint64_t> stamp;
  Published<FrameHeader> header;
};
static_assert(sizeof(SlotLine) == kCacheLine);
static_assert(Atomic<std::uint64_t>::is_always_lock_free && Atomic<std::uint32_t>::is_always_lock_free);

/// Where a rank shows its peers its contribution to a round of a shared collective (one_host/shared_rounds.hpp); two
/// per priority, used alternately. `stamp` is the number of the round, written last. Initially zero, i.e. round 0,
/// published by everybody.
struct alignas(2 * kCacheLine) StageBuffer {
  static constexpr std::size_t kInlineBytes = 48;
  static constexpr std::size_t kStageBytes = 1_MiB;
  static constexpr std::size_t kCosts = 5;
  using Costs = std::array<std::uint32_t, kCosts>;

  Atomic<std::uint64_t> stamp;
  Published<std::uint64_t> fingerprint;
  std::array<std::byte, kInlineBytes> inlined;
  Costs costs;  // of the ways to move large blocks (one_host/agreed_way.hpp)
  alignas(2 * kCacheLine) std::array<std::byte, kStageBytes> stage;
};

/// A rank of this host as it introduced itself.
struct ShmMember {
  std::uint32_t rank = 0;
  pid_t process = 0;
  std::string entrance;  // Unix address at which it hands out the memory if it is the lowest rank
  std::string doorbell;  // Doorbell::address()
};

class ShmSegment {
 public:
  /// The listening socket, opened before a rank knows whether it is its host's lowest.
  static UniqueFd listen(const std::string& entrance);

  /// Collective over `members` (ascending, including this rank). `entrance` is what listen() returned; `doorbell` is
  /// this process's and must outlive this. Throws Error(timeout) or Error(dead) naming the missing ranks, or
  /// Error(system).
  ShmSegment(std::span<const ShmMember> members, std::uint32_t rank, UniqueFd entrance, const Doorbell& doorbell,
             const StreamShape& shape, std::chrono::steady_clock::time_point deadline);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  [[nodiscard]] const StreamShape& shape() const { return shape_; }
  [[nodiscard]] std::span<const std::uint32_t> ranks() const { return ranks_; }
  /// Position of `rank` among this host's ranks.
  [[nodiscard]] std::uint32_t local(std::uint32_t rank) const { return local_[rank]; }

  [[nodiscard]] AbortRecord& abort_record() const;
  [[nodiscard]] BoardLine& board(std::uint32_t rank) const;
  [[nodiscard]] Post& post(std::uint32_t rank, std::size_t slot) const;
  [[nodiscard]] StageBuffer& stage_buffer(std::uint32_t rank, Priority priority, std::uint64_t parity) const;
  [[nodiscard]] std::byte* stream(std::uint32_t destination, std::uint32_t source, std::uint32_t channel,
                                  std::uint32_t window) const;
  /// Wakes `rank` from epoll.
  void ring(std::uint32_t rank) const { doorbell_.ring(doorbells_[local_[rank]]); }

 private:
  void create(std::span<const ShmMember> members, const UniqueFd& entrance,
              std::chrono::steady_clock::time_point deadline);
  void join(const ShmMember& leader, std::chrono::steady_clock::time_point deadline);
  void map();

  StreamShape shape_;
  std::vector<std::uint32_t> ranks_;
  std::vector<std::uint32_t> local_;  // by rank
  std::size_t stream_bytes_ = 0;
  std::size_t posts_offset_ = 0;
  std::size_t stages_offset_ = 0;
  std::size_t streams_offset_ = 0;
  std::size_t bytes_ = 0;
  UniqueFd memory_;
  const Doorbell& doorbell_;
  std::vector<std::string> doorbells_;  // addresses, by local position
  std::byte* base_ = nullptr;
};

}  // namespace syntony
