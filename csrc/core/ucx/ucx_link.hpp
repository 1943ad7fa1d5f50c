// A FrameLink over UCX: one endpoint, made when there is something to send, and what is under way on it.
//
//      post()        active message [MessageHeader | payload]    from the slot, which is held until UCX lets go of it
//                    the shortest are part of their header, short ones come with it, and of long ones the receiver
//                    fetches the payload (rendezvous)
//      the other     looks at the header first, and has the payload put where it belongs: into its slot
//      write()       active message [MessageHeader, of a credit]  unless the credit goes along with the next frame the
//                    other way, which it does where both send by turns
//
// A slot is filled again only when the receiver has said that it has released the frame: what UCX calls complete is
// never taken for delivered. It counts only for what is still to be done before the group may rest (unsent()).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/frames/frame_link.hpp"
#include "core/frames/message_wire.hpp"
#include "core/ucx/ucx_worker.hpp"

namespace syntony {

class UcxLink final : public FrameLink {
 public:
  UcxLink(const StreamShape& shape, const GroupIdentity& identity, std::uint32_t rank, UcxWorker& worker,
          const std::string& address);

  void post(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload) override;

  /// A message of this rank's, from inside UcxWorker::progress(). Of a rendezvous, `data` is UCX's word for it.
  void take(const MessageHeader& message, const void* data, std::size_t bytes, bool rendezvous);
  /// Whether a message may be of this rank.
  [[nodiscard]] bool sent(const MessageHeader& message) const { return message.mark == their_mark_; }

  /// Sends the credits for which somebody may wait. True when anything moved.
  bool write();
  /// Once per turn: sends what is owed, and sees to it that UCX passes on what it has, once that has waited for a
  /// while. True when it has sent something.
  bool rest();
  /// Notices the end of the connection.
  void settle();
  /// Something has not left this process, or its receiver has yet to fetch it.
  [[nodiscard]] bool unsent() const;
  /// Ends everything that is under way. False while UCX has to go on with that.
  [[nodiscard]] bool closed();

 private:
  using Clock = std::chrono::steady_clock;

  /// A message under way in one direction or the other; UCX reads its header until it is done.
  struct Parcel {
    MessageHeader message;
    std::array<std::byte, UcxWorker::kShort> payload{};  // a short one, which UCX sends as part of the header
    UcxLink* link = nullptr;
  };

  [[nodiscard]] ucp_ep_h endpoint();
  [[nodiscard]] Parcel& parcel(const FramePrefix& prefix);
  void send(ucp_ep_h to, Parcel& parcel, const std::byte* payload);
  void sent(Parcel& parcel, ucs_status_t status);
  void fetch(const MessageHeader& message, std::byte* slot, const void* data);
  void fetched(Parcel& parcel, ucs_status_t status);
  bool pay(std::uint64_t least);
  void close();

  UcxWorker& worker_;
  const std::string& address_;
  std::uint64_t our_mark_;
  std::uint64_t their_mark_;
  ucp_ep_h endpoint_ = nullptr;
  ucs_status_ptr_t closing_ = nullptr;
  ucs_status_t failure_ = UCS_OK;
  std::vector<std::unique_ptr<Parcel>> parcels_;  // all
  std::vector<Parcel*> spare_;                    // those that are not under way
  std::size_t sending_ = 0;                       // messages that UCX has not done with
  std::size_t sending_frames_ = 0;                // data frames among them
  std::size_t failed_frames_ = 0;
  std::size_t unflushed_ = 0;  // messages since the last flush began
  std::size_t unflushed_frames_ = 0;
  bool flushing_ = false;
  Clock::time_point quiet_since_{};  // of the first turn after the last message; none before
};

}  // namespace syntony
