// A MessageLink over UCX: one endpoint, created on demand, and the messages in flight on it.
//
//     post()        active message [MessageHeader | payload]    from the slot, which is held until UCX releases it;
//                   the shortest payloads are part of the header, short ones are sent with it, and the receiver
//                   fetches long ones (rendezvous)
//     the other     reads the header first, and has the payload received in its slot
//                   (between ranks of one machine, payloads from a page on stay in the sender's slot, which UCX has
//                   mapped at the receiver, who reads them there: the message only says where)
//     write()       active message [MessageHeader, of a credit]  unless the credit is sent with the next frame in the
//                   other direction, as happens if both send alternately
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/frames/message_link.hpp"
#include "core/ucx/ucx_worker.hpp"

namespace syntony {

class UcxLink final : public MessageLink {
 public:
  UcxLink(const StreamShape& shape, const GroupIdentity& identity, std::uint32_t rank, UcxWorker& worker,
          const std::string& address);

  using MessageLink::sent;
  void post(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload) override;
  /// A slot of memory that the peer reads directly, if it is on this machine, and UCX is used through its memory.
  [[nodiscard]] std::byte* lent_room(StreamKey key, std::uint64_t number, std::size_t bytes) override;
  /// What was sent along with its header arrives at once.
  [[nodiscard]] bool redirects() const override { return true; }

  /// A message from this rank, called inside UcxWorker::progress(). For a rendezvous, `data` is UCX's descriptor of it.
  void take(const MessageHeader& message, const void* data, std::size_t bytes, bool rendezvous);
  /// The peer says that it can read memory of this process.
  void lend() { lends_ = true; }
  /// A message about a frame whose payload stays where it is; `where` says where the slots of its stream are.
  void look(const MessageHeader& message, std::string_view where);
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

  static constexpr std::size_t kWorthLending = 4096;  // bytes of a frame from which that is faster than copies by UCX

  [[nodiscard]] ucp_ep_h endpoint();
  [[nodiscard]] std::size_t place_in_memory(std::uint64_t number) const;
  /// The slot of frame `number` that the peer can read; nullptr if there is none.
  [[nodiscard]] std::byte* lent(StreamKey key, std::uint64_t number) const;
  [[nodiscard]] Parcel& parcel(const FramePrefix& prefix);
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
  bool lends_ = false;                            // slots to the peer
  std::vector<UcxMemory::Shared> lent_;           // by stream, its slots; empty, or none, until first used
  std::vector<std::byte*> read_;                  // by stream, the peer's slots; likewise
  std::vector<std::unique_ptr<Parcel>> parcels_;  // all
  std::vector<Parcel*> spare_;                    // those not in flight
};

}  // namespace syntony
