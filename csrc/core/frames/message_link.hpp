// A FrameLink over a wire that carries whole messages (UCX, libfabric): when credits go, and what is done with.
//
// A slot is filled again only when the receiver has said that it has released the frame: what such a wire calls
// complete is never taken for delivered. It counts only for what is still to be done before the group may rest
// (unsent()).
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

  /// Whether a message may be of this rank.
  [[nodiscard]] bool sent(const MessageHeader& message) const { return message.mark == their_mark_; }
  /// Sends the credits for which somebody may wait. True when anything moved.
  bool write();
  /// Once per turn: sends what is owed, and asks whether the wire has passed on what it took, once that has waited for
  /// a while. True when it has sent something.
  bool rest();
  /// Notices the end of the connection.
  virtual void settle() = 0;
  /// Something has not left this process, or its receiver has yet to fetch it.
  [[nodiscard]] bool unsent() const;
  /// Before closing: every frame has come, and nothing that the peer may need is left here.
  [[nodiscard]] bool handed_over() const;

 protected:
  /// With everything but what concerns data only.
  [[nodiscard]] MessageHeader addressed(const FramePrefix& prefix) const;
  /// Believes a message that says how many bytes came with it, or refuses it. Where those go; nullptr: nowhere.
  [[nodiscard]] std::byte* believe(const MessageHeader& message, std::size_t bytes);
  virtual void send_credit(const FramePrefix& credit) = 0;
  /// Asks the wire to call fenced() once the peer has all messages so far. False: it cannot be asked.
  [[nodiscard]] virtual bool fence() = 0;

  // What the wire tells.
  void taken(const FramePrefix& prefix);
  void done_with(const FramePrefix& prefix, bool failed);
  void fenced() { fencing_ = false; }
  /// Frames that may not have come where they should, now that the wire has failed.
  [[nodiscard]] std::size_t undelivered() const {
    return failed_frames_ + sending_frames_ + (fencing_ ? 0 : unfenced_frames_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool pay(std::uint64_t least);

  std::uint64_t our_mark_;
  std::uint64_t their_mark_;
  std::size_t sending_ = 0;         // messages that the wire has not done with
  std::size_t sending_frames_ = 0;  // data frames among them
  std::size_t failed_frames_ = 0;
  std::size_t unfenced_ = 0;  // messages since the last fence
  std::size_t unfenced_frames_ = 0;
  bool fencing_ = false;
  Clock::time_point quiet_since_{};  // of the first turn after the last message; none before
};

}  // namespace syntony
