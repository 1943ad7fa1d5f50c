// Tagged messages between two ranks, apart from the collectives: own window, own matching, no Program.
//
// A message is cut into frames on one stream per pair; the first frame carries tag and total size. The receiver matches
// it by (source, tag) with the receives posted here, in posting order. An unexpected message is buffered in ordinary
// memory, so two ranks that both send first do not block each other.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/progress/work.hpp"
#include "core/transport.hpp"

namespace syntony {

inline constexpr int kAnySource = -1;

struct OutgoingMessage {
  std::shared_ptr<Work> work;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint32_t destination = 0;
  std::uint64_t tag = 0;
  Lifetime lifetime;
  std::shared_ptr<const void> keep_alive;
  std::size_t sent = 0;
  std::uint32_t slice = 0;
};

struct PostedReceive {
  std::shared_ptr<Work> work;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int source = kAnySource;
  std::uint64_t tag = 0;
  Lifetime lifetime;
  std::shared_ptr<const void> keep_alive;
};

/// Owned by a Group and, like it, touched by the owner of progress only.
class PointToPoint {
 public:
  /// `transports` by peer (null for `rank`); `header` holds token and group; `sent` counts bytes by peer.
  PointToPoint(std::uint32_t rank, std::span<Transport* const> transports, std::uint32_t window,
               std::uint32_t slot_bytes, const FrameHeader& header, std::span<SentBytes> sent);

  void send(OutgoingMessage message);
  void receive(PostedReceive receive);
  /// True if anything moved. Throws Error(mismatch) for a frame that cannot belong to this traffic.
  bool step();
  [[nodiscard]] bool busy() const { return pending_sends_ > 0 || !receives_.empty() || claimed_ > 0; }

  /// Peers that a send or receive here waits for by name.
  [[nodiscard]] std::vector<std::uint32_t> waiting_for() const;
  /// True if a receive from any source is posted.
  [[nodiscard]] bool waits_for_anyone() const;
  /// A send, or a receive from one rank, that was posted before `then` and is not done, as a phrase.
  [[nodiscard]] std::optional<std::string> waiting_since(Work::Clock::time_point then) const;
  /// Drops unmatched receives whose deadline has passed, each with its Error(timeout). Returns the message for a send
  /// or a partly received message whose deadline has passed: the stream is then beyond repair.
  [[nodiscard]] std::optional<std::string> expire(Work::Clock::time_point now);
  /// Ends everything with `error`.
  void fail(const std::exception_ptr& error);

 private:
  /// A message that is arriving or has arrived, matched or not.
  struct IncomingMessage {
    std::uint64_t tag = 0;
    std::vector<std::byte> data;
    std::size_t total = 0;
    std::size_t received = 0;
    std::optional<PostedReceive> claimant;
    std::uint32_t next_slice = 0;
    [[nodiscard]] bool complete() const { return received == total && next_slice > 0; }
  };

  bool push(std::list<OutgoingMessage>& queue);
  bool pull(std::uint32_t peer);
  void take(std::uint32_t peer, const FrameHeader& header, const std::byte* payload);
  void begin(std::uint32_t peer, const FrameHeader& header);
  void settle(std::uint32_t peer);
  void deliver(std::uint32_t peer, IncomingMessage& message);
  void send_to_self(const OutgoingMessage& message);

  std::uint32_t rank_;
  std::span<Transport* const> transports_;
  std::uint32_t window_;
  std::uint32_t slot_bytes_;
  FrameHeader header_;
  std::span<SentBytes> sent_;
  std::map<std::uint32_t, std::list<OutgoingMessage>> outgoing_;  // by peer, for peers with any so far
  std::map<std::uint32_t, std::list<IncomingMessage>> incoming_;  // likewise, oldest first; the last may be incomplete
  std::map<std::uint32_t, std::uint64_t> next_message_;           // by peer: number of the next message we send
  std::list<PostedReceive> receives_;                             // unmatched, in the order posted
  std::size_t pending_sends_ = 0;
  std::size_t claimed_ = 0;
};

}  // namespace syntony
