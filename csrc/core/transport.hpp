// How bytes move between two ranks: the contract that shared memory, TCP, UCX and libfabric implement.
//
// A *stream* is one direction of one connection: (source, destination, channel, window). It is a FIFO of `depth` slots
// of `slot_bytes` that live at the destination:
//
//      source                                   destination
//      reserve(n) -> room in the next slot      front() -> header of the oldest frame, or nothing yet
//      commit(header): the frame is on its way  payload(), release(): the slot is free again
//
// reserve() returns nothing while all slots are taken; this is the only flow control. Frames of a stream arrive in
// order, whole or not at all. Nothing here blocks and nothing here is thread-safe: only the thread that owns progress
// calls it (progress_engine.hpp). The control plane is separate (control.hpp).
//
// Windows keep operations in flight from sharing slots: each priority has W windows, and its operation number q uses
// window q mod W. Tagged point-to-point traffic has the last window to itself.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/priority.hpp"

namespace syntony {

class Wires;

/// Precedes every payload and is verified before the payload is used. Little-endian on the wire as in memory.
struct FrameHeader {
  std::uint64_t token = 0;  // the group's secret: rejects frames from strangers and from dead groups
  std::uint32_t group = 0;
  std::uint16_t channel = 0;
  std::uint16_t priority = 0;
  std::uint64_t sequence = 0;     // number of the operation; for point-to-point, of the message of the pair
  std::uint64_t fingerprint = 0;  // the operation as the sender sees it; for point-to-point, the tag
  std::uint32_t slice = 0;
  std::uint32_t length = 0;  // payload bytes in this frame
  std::uint64_t total = 0;   // point-to-point: bytes of the whole message

  bool operator==(const FrameHeader&) const = default;
};
static_assert(sizeof(FrameHeader) == 48);

/// Payload bytes sent to one peer. Written by the owner of progress and read by any thread: no read-modify-write, no
/// bus lock.
using SentBytes = std::atomic<std::uint64_t>;
inline void count(SentBytes& sent, std::uint64_t bytes) {
  sent.store(sent.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
}

/// For Sender::reserve: reports a message that was split wrongly.
inline void require_fit(std::size_t bytes, std::uint32_t slot_bytes, std::uint32_t peer) {
  if (bytes <= slot_bytes) return;
  throw Error(Error::Kind::invalid, "internal error: a frame of " + std::to_string(bytes) + " bytes for rank " +
                                        std::to_string(peer) + " does not fit a slot of " + std::to_string(slot_bytes));
}

class Sender {
 public:
  virtual ~Sender() = default;
  /// Room for `bytes`, or nullptr while the stream is full. Idempotent until commit(). Throws Error(invalid) for more
  /// than a slot holds.
  [[nodiscard]] virtual std::byte* reserve(std::size_t bytes) = 0;
  /// Sends `header` and the first header.length bytes of the reserved room.
  virtual void commit(const FrameHeader& header) = 0;
  /// reserve(), a copy of header.length bytes from `payload`, and commit(); false while the stream is full. Transports
  /// that can send directly from `payload` save the copy.
  [[nodiscard]] virtual bool send(const FrameHeader& header, const std::byte* payload) {
    std::byte* const room = reserve(header.length);
    if (room == nullptr) return false;
    if (header.length > 0) std::memcpy(room, payload, header.length);
    commit(header);
    return true;
  }
  /// Frames committed that the destination has not yet released, as far as known here.
  [[nodiscard]] virtual std::uint64_t on_their_way() = 0;
};

class Receiver {
 public:
  virtual ~Receiver() = default;
  /// The oldest frame's header, or nullptr when none has arrived. Valid until release().
  [[nodiscard]] virtual const FrameHeader* front() = 0;
  [[nodiscard]] virtual const std::byte* payload() const = 0;
  virtual void release() = 0;
  /// Announces that the frame `ahead` frames after the oldest will have `header`, and that its payload belongs at
  /// `place`, which nobody else reads or writes from now on. A transport that can receive into `place` does so;
  /// payload() then points there.
  virtual void expect(std::uint32_t /*ahead*/, const FrameHeader& /*header*/, std::byte* /*place*/) {}
  /// Stops receiving into any announced place; their memory may be freed afterwards.
  virtual void forget_places() {}
};

/// The shape of a group's streams, equal on all its ranks.
struct StreamShape {
  std::uint32_t ranks = 1;
  std::uint32_t channels = 1;
  std::uint32_t windows = 7;  // operations in flight: 2 for each of three priorities; + 1 for point-to-point
  std::uint32_t depth = 4;
  std::uint32_t slot_bytes = 128 * 1024;
  std::uint32_t credit = 256 * 1024;  // bytes that a rank's low-priority operations may have in flight
  // Between hosts a stream may hold more frames than `depth`, if at most that many are longer than kShortFrame: what
  // is on its way must last for a round trip, however short its frames are.
  std::uint32_t short_frames = 0;
  static constexpr std::uint32_t kShortFrame = 32 * 1024;

  /// The most frames of a stream between hosts.
  [[nodiscard]] std::uint32_t frames() const { return std::max(depth, short_frames); }

  /// The priority of what travels in `window`: collectives have windows by priority, point-to-point the last one.
  [[nodiscard]] Priority priority_of(std::uint32_t window) const {
    if (window + 1 == windows) return Priority::normal;
    const std::size_t each = std::max<std::size_t>(1, (windows - 1) / kPriorities);
    return static_cast<Priority>(std::min(window / each, kPriorities - 1));
  }
};

class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual Sender& sender(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) = 0;
  [[nodiscard]] virtual Receiver& receiver(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) = 0;
  /// False: nothing can have arrived from `peer` yet, and creating a receiver would only waste memory.
  [[nodiscard]] virtual bool heard_from(std::uint32_t /*peer*/) const { return true; }
  /// Moves whatever can be moved now (system calls included). True if anything moved. Throws Error(dead) naming the
  /// rank.
  virtual bool progress() = 0;
  /// True if something was committed or released that only progress() or wake() will hand to the peers.
  [[nodiscard]] virtual bool unsent() const = 0;
  /// Before closing: makes progress until everything committed has been handed to the peers (their kernels have it), so
  /// that a goodbye cannot overtake it. False if `timeout` passed first.
  virtual bool drain(std::chrono::milliseconds timeout) = 0;
  /// Wakes sleeping peers for whom something was committed or released since the last call.
  virtual void wake() = 0;
  /// Called before (true) and after (false) this rank sleeps in epoll, when peers must wake() it.
  virtual void sleeping(bool asleep) = 0;
  /// Tells the peers which CPU this rank waits on. True if an awake peer has named the same CPU.
  virtual bool meets_on(std::uint32_t /*cpu*/) { return false; }
  /// A CPU of `allowed` that fewer awake ranks have named than `cpu`, if it is this rank's turn to move there (so that
  /// not all ranks leave at once).
  [[nodiscard]] virtual std::optional<std::uint32_t> emptier(std::uint32_t /*cpu*/,
                                                             std::span<const std::uint32_t> /*allowed*/) const {
    return std::nullopt;
  }
  /// File descriptors that become readable or writable when progress() may have something to do. Edge-triggered: the
  /// owner calls progress() until it returns false before it sleeps.
  [[nodiscard]] virtual std::span<const int> descriptors() const = 0;
  /// The connections that have ended, each as Error(dead) that names the rank. Not all are faults: a peer that has done
  /// its part may end. The owner knows whether it has.
  [[nodiscard]] virtual std::vector<Error> ended() const { return {}; }
  /// What is known of the links below (core/recorder/wires.hpp); null if nobody counts.
  [[nodiscard]] virtual std::shared_ptr<Wires> wires() const { return nullptr; }
};

}  // namespace syntony
