// A FrameLink over a wire that carries whole messages (UCX, libfabric): decides when credits are sent, and tracks what
// has completed.
//
// A slot is refilled only when the receiver has said that it has released the frame: completion reported by such a wire
// is never taken for delivery. It only affects what must still be done before the group may sleep (unsent()).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "core/frames/frame_link.hpp"
#include "core/frames/message_wire.hpp"

namespace syntony {

class MessageLink : public FrameLink {
 public:
  MessageLink(const StreamShape& shape, const GroupIdentity& identity, std::uint32_t rank);

  /// True if a message may come from this rank.
  [[nodiscard]] bool sent(const MessageHeader& message) const { return message.mark == their_mark_; }
  /// Sends the credits for which somebody may wait. True if anything moved.
  virtual bool write();
  /// Once per turn: sends owed credits and, after the link has been quiet for a while, asks whether the wire has passed
  /// on what it took. True if it has sent something.
  bool rest();
  /// Notices the end of the connection.
  virtual void settle() = 0;
  /// True if something has not left this process, or its receiver has yet to fetch it.
  [[nodiscard]] bool unsent() const;
  /// Before closing: true if every frame has arrived and nothing that the peer may need is left here.
  [[nodiscard]] virtual bool handed_over() const;

 protected:
  /// A header with everything except what concerns only data.
  [[nodiscard]] MessageHeader addressed(const FramePrefix& prefix) const;
  /// Validates a message that claims to have come with `bytes` bytes. Returns where they belong; nullptr: nowhere.
  [[nodiscard]] std::byte* believe(const MessageHeader& message, std::size_t bytes);
  virtual void send_credit(const FramePrefix& credit) = 0;
  /// Asks the wire to call fenced() once the peer has all messages so far. False if it cannot be asked.
  [[nodiscard]] virtual bool fence() = 0;

  // Called by the wire.
  void taken(const FramePrefix& prefix);
  void done_with(const FramePrefix& prefix, bool failed);
  void fenced() { fencing_ = false; }
  /// Frames that may not have arrived, now that the wire has failed.
  [[nodiscard]] std::size_t undelivered() const {
    return failed_frames_ + sending_frames_ + (fencing_ ? 0 : unfenced_frames_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool pay(std::uint64_t least);

  std::uint64_t our_mark_;
  std::uint64_t their_mark_;
  std::size_t sending_ = 0;         // messages that the wire has not finished
  std::size_t sending_frames_ = 0;  // data frames among them
  std::size_t failed_frames_ = 0;
  std::size_t unfenced_ = 0;  // messages since the last fence
  std::size_t unfenced_frames_ = 0;
  bool fencing_ = false;
  Clock::time_point quiet_since_{};  // of the first turn after the last message; unset before
};

}  // namespace syntony
