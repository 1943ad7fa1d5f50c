// A MessageLink over libfabric: the messages in flight to one peer, and those libfabric had no room for yet.
//
//     post()        message [MessageHeader | payload]           short ones, into a buffer that the other has posted
//                   message [MessageHeader], tagged [payload]   long ones; the payload from the slot, which is held
//                                                               until libfabric releases it
//     the other     reads the header first, and receives the payload in its slot, by the tag
//     fence()       message [MessageHeader, of a credit]        completes when it was delivered (FI_DELIVERY_COMPLETE),
//                                                               and so was everything before it
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/frames/message_link.hpp"
#include "core/libfabric/libfabric_endpoint.hpp"

namespace syntony {

class LibfabricLink final : public MessageLink {
 public:
  static constexpr std::size_t kShort = 8192 - sizeof(MessageHeader);  // payload bytes that are sent with their header

  LibfabricLink(const StreamShape& shape, const GroupIdentity& identity, std::uint32_t rank,
                LibfabricEndpoint& endpoint, const std::string& address);

  using MessageLink::sent;
  void post(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload) override;
  /// A message from this rank, and its payload.
  void take(const MessageHeader& message, std::span<const std::byte> payload);
  /// Retries what libfabric had no room for. True if anything moved.
  bool retry();
  /// True if something waits for room; there may be no event when there is room.
  [[nodiscard]] bool waits() const { return !waiting_.empty(); }
  void settle() override;

 private:
  enum class What : std::uint8_t { message, fence, payload, fetch };
  struct Task final : LibfabricOperation {
    explicit Task(LibfabricLink& of) : link(of) {}
    void done(int error, std::size_t bytes) override { link.done(*this, error, bytes); }

    LibfabricLink& link;
    What what = What::message;
    FramePrefix prefix;              // of the payload, or of a credit if there is none
    std::vector<std::byte> message;  // encoded for the wire
    std::size_t message_bytes = 0;
    std::byte* slot = nullptr;  // of a payload
    std::size_t length = 0;
    std::uint64_t tag = 0;
  };

  [[nodiscard]] Task& task(What what, const FramePrefix& prefix);
  void write_message(Task& task, const MessageHeader& message, const std::byte* payload, std::size_t length);
  void start(Task& task);
  [[nodiscard]] long attempt(Task& task);
  void done(Task& task, int error, std::size_t bytes);
  [[nodiscard]] fi_addr_t peer_address();
  [[nodiscard]] std::uint64_t tag_of(std::uint32_t from, const FramePrefix& prefix) const;
  void send_credit(const FramePrefix& credit) override;
  [[nodiscard]] bool fence() override;

  LibfabricEndpoint& endpoint_;
  const std::string& address_;
  std::uint32_t windows_;
  std::size_t slot_bytes_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  StreamKey last_;                            // a stream on which this rank has sent
  std::vector<std::unique_ptr<Task>> tasks_;  // all
  std::vector<Task*> spare_;                  // those not in flight
  std::deque<Task*> waiting_;                 // for room
  int failure_ = 0;
};

}  // namespace syntony
