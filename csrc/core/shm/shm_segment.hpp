// The memory that the ranks of one host share for one group: a memfd, nothing with a name in any file system, so
// nothing is left behind however a process ends.
//
//      +--------+---------------------------+--------------------------------------------------------------+
//      | abort  | BoardLine, posts, stages  | streams: [destination][source][channel][window]              |
//      |        | per rank                  | each: | released | (stamp, header) payload | .. depth slots  |
//      +--------+---------------------------+--------------------------------------------------------------+
//
// The file is sparse: a stream that is never used never costs a page. The host's lowest rank creates it and hands it
// round over an abstract Unix socket, together with everybody's doorbell (an eventfd).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/control.hpp"
#include "core/host.hpp"
#include "core/transport.hpp"
#include "core/unique_fd.hpp"

namespace syntony {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kRememberedOperations = 16;

/// How far a rank is with the operations of one priority.
struct alignas(kCacheLine) BoardProgress {
  std::atomic<std::uint64_t> completed;
  std::atomic<std::uint64_t> started;  // sequence; its Descriptor is remembered[started % kRememberedOperations]
  alignas(kCacheLine) std::array<Descriptor, kRememberedOperations> remembered;
};

/// What a rank tells the others of its host. One writer (the rank itself); padded against neighbouring lines.
struct alignas(2 * kCacheLine) BoardLine {
  std::array<BoardProgress, kPriorities> progress;
  alignas(kCacheLine) std::atomic<std::uint32_t> left;
  alignas(kCacheLine) std::atomic<std::uint32_t> sleeping;
};

/// Why the group ended. `state` goes 0 -> 1 (somebody writes) -> 2 (readable).
struct alignas(2 * kCacheLine) AbortRecord {
  std::atomic<std::uint32_t> state;
  std::uint32_t kind;
  std::uint32_t rank_count;
  std::array<std::int32_t, 64> ranks;
  std::array<char, 1024> sentence;
};

/// What a rank leaves for the others (ControlPlane::post). `number` is written last; 0 means nothing yet.
struct alignas(kCacheLine) Post {
  std::atomic<std::uint64_t> number;
  std::uint32_t length;
  std::array<char, kLongestPost> text;
};

/// One slot's first cache line. `stamp` is the number of the frame in the slot, counted from 1: written last by the
/// source, it publishes the frame.
struct alignas(kCacheLine) SlotLine {
  std::atomic<std::uint64_t> stamp;
  FrameHeader header;
};
static_assert(sizeof(SlotLine) == kCacheLine);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

/// Where a rank shows its peers what it brings to a round of a shared collective (one_host/shared_rounds.hpp); it has
/// two for each priority, used in turn. `stamp` is the number of the round, written last. Zeros at first:
/// round 0, published by everybody.
struct alignas(2 * kCacheLine) StageBuffer {
  static constexpr std::size_t kInlineBytes = 48;
  static constexpr std::size_t kStageBytes = std::size_t{384} << 10U;

  std::atomic<std::uint64_t> stamp;
  std::uint64_t fingerprint;
  std::array<std::byte, kInlineBytes> inlined;
  alignas(2 * kCacheLine) std::array<std::byte, kStageBytes> stage;
};

/// Where one host's ranks meet.
struct ShmMeeting {
  std::string address;               // abstract Unix socket of the lowest rank
  Token token{};                     // the group's secret
  std::vector<std::uint32_t> ranks;  // of this host, ascending
  std::uint32_t rank = 0;            // this one
  int doorbell = -1;                 // this process's eventfd
};

class ShmSegment {
 public:
  /// The listening socket a rank offers before it knows whether it will be its host's lowest.
  static UniqueFd listen(const std::string& address);
  /// A name for it that no other process has.
  static std::string fresh_address();

  /// Collective over meeting.ranks. Throws Error(timeout) naming the ranks that did not come, or Error(system).
  ShmSegment(const ShmMeeting& meeting, const UniqueFd& listener, const StreamShape& shape,
             std::chrono::steady_clock::time_point deadline);
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
  /// Wakes `rank` out of epoll.
  void ring(std::uint32_t rank) const;

 private:
  void create(const ShmMeeting& meeting, const UniqueFd& listener, std::chrono::steady_clock::time_point deadline);
  void join(const ShmMeeting& meeting, std::chrono::steady_clock::time_point deadline);
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
  std::vector<UniqueFd> doorbells_;  // by local position
  std::byte* base_ = nullptr;
};

}  // namespace syntony
