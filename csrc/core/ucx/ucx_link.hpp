// A MessageLink over UCX: one endpoint, created on demand, and the messages in flight on it.
//
//     post()        active message [MessageHeader | payload]    from the slot, which is held until UCX releases it;
//                   the shortest payloads are part of the header, short ones are sent with it, and the receiver
//                   fetches long ones (rendezvous)
//     the other     reads the header first, and has the payload received in its slot
//     write()       active message [MessageHeader, of a credit]  unless the credit is sent with the next frame in the
//                   other direction, as happens if both send alternately
//
// Between ranks of one machine, a message only says where the frames of a stream will be from some number on: in memory
// of the sender that UCX has mapped at the receiver (ucx_stream.hpp). They are read there, and released there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/frames/message_link.hpp"
#include "core/shm/shown_copy.hpp"
#include "core/ucx/ucx_stream.hpp"
#include "core/ucx/ucx_worker.hpp"

namespace syntony {

class UcxLink final : public MessageLink {
 public:
  UcxLink(const StreamShape& shape, const GroupIdentity& identity, std::uint32_t rank, UcxWorker& worker,
          const std::string& address);

  using MessageLink::sent;
  void post(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload) override;
  void pass(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload,
            std::byte* slot) override;
  /// A slot of memory that the peer reads directly, if it is on this machine, and UCX is used through its memory.
  [[nodiscard]] std::byte* lent_room(StreamKey key, std::uint64_t number) override;
  void look_for_frame(StreamKey key) override;
  void look_for_credit(StreamKey key) override;
  void owe_credit(FrameReceiver& receiver) override;
  /// What was sent along with its header arrives at once. Frames of a peer that lends its memory stay where they are.
  [[nodiscard]] bool redirects() const override { return !reads_memory(); }

  /// A message from this rank, called inside UcxWorker::progress(). For a rendezvous, `data` is UCX's descriptor of it.
  void take(const MessageHeader& message, const void* data, std::size_t bytes, bool rendezvous);
  /// The peer says that it can read memory of this process.
  void can_read() { lends_ = true; }
  /// From frame `message.prefix.number` on, the frames of a stream are in the memory that `where` tells.
  void look(const MessageHeader& message, std::string_view where);
  [[nodiscard]] bool reads_memory() const { return peer_ != nullptr; }
  /// Tells the peer whether this rank must be woken.
  void sleeping(bool asleep);
  /// Tells the peer which CPU this rank waits on.
  void waits_on(std::uint32_t cpu);
  /// The CPU on which the peer waits, if that is known and it is awake.
  [[nodiscard]] std::optional<std::uint32_t> peer_cpu() const;
  bool write() override;
  void settle() override;
  /// What the peer has yet to read is here.
  [[nodiscard]] bool handed_over() const override;
  /// Ends everything in flight. False while UCX still works on that.
  [[nodiscard]] bool closed();

 private:
  /// A message in flight in either direction; UCX reads its header until it is done.
  struct Parcel {
    MessageHeader message;
    std::array<std::byte, UcxWorker::kShort> payload{};  // a short one, which UCX sends as part of the header
    UcxLink* link = nullptr;
  };

  /// A stream that the peer lends.
  struct Reading {
    UcxStream stream;
    std::uint64_t next = 0;  // the frame that comes next
  };

  [[nodiscard]] ucp_ep_h endpoint();
  [[nodiscard]] UcxStream stream_in(std::byte* memory) const;
  /// Memory for a stream, of which the peer is told.
  [[nodiscard]] UcxStream lend(StreamKey key, std::uint64_t first);
  /// nullptr while frames are sent as messages.
  [[nodiscard]] const UcxStream* lent(StreamKey key) const;
  [[nodiscard]] Reading* reading(StreamKey key) const { return read_.empty() ? nullptr : read_[index(key)].get(); }
  [[nodiscard]] Parcel& parcel(const FramePrefix& prefix);
  /// A message that says no more than that it is one.
  void send_nothing(unsigned kind);
  void send(ucp_ep_h to, unsigned kind, Parcel& parcel, std::span<const std::byte> payload);
  void sent(Parcel& parcel, ucs_status_t status);
  void send_credit(const FramePrefix& credit) override;
  void tell_what_it_reads();
  [[nodiscard]] bool fence() override;
  void fetch(const MessageHeader& message, std::byte* slot, const void* data);
  void fetched(Parcel& parcel, ucs_status_t status);
  void close();

  UcxWorker& worker_;
  const std::string& address_;
  ucp_ep_h endpoint_ = nullptr;
  ucs_status_ptr_t closing_ = nullptr;
  ucs_status_t failure_ = UCS_OK;
  bool lends_ = false;                            // streams to the peer
  std::vector<UcxStream> lent_;                   // by stream; empty, or none, until first used
  std::vector<std::unique_ptr<Reading>> read_;    // by stream; likewise
  std::vector<UcxSide*> ours_;                    // our sides of all these streams
  UcxSide* peer_ = nullptr;                       // the peer's side of one that it lends
  UcxSide* news_ = nullptr;                       // the peer's side of a stream in which something is new for it
  ShownCopy shown_copy_;                          // into lent slots
  std::vector<std::unique_ptr<Parcel>> parcels_;  // all
  std::vector<Parcel*> spare_;                    // those not in flight
};

}  // namespace syntony
