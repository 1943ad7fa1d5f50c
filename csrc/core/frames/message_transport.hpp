// A Transport of MessageLinks, independent of what carries the messages.
//
//      UcxTransport, LibfabricTransport -- MessageLink (one per neighbour) -- FrameSender, FrameReceiver (one per
//                                                                             stream in use)
//
// The control plane stays on TCP, including the reports of deaths and mismatches (tcp_control.hpp); failures reported
// by the wire only end what can no longer be sent. progress() throws like TcpTransport's.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/frames/message_link.hpp"
#include "core/process/unique_fd.hpp"
#include "core/transport.hpp"

namespace syntony {

class MessageTransport : public Transport {
 public:
  MessageTransport(const MessageTransport&) = delete;
  MessageTransport& operator=(const MessageTransport&) = delete;
  ~MessageTransport() override = default;

  /// Throws Error(invalid) for a rank that is not remote.
  [[nodiscard]] Sender& sender(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) override;
  [[nodiscard]] Receiver& receiver(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) override;
  bool progress() override;
  [[nodiscard]] bool unsent() const override;
  bool drain(std::chrono::milliseconds timeout) override;
  void wake() override;
  void sleeping(bool asleep) override;
  [[nodiscard]] std::vector<Error> ended() const override { return ended_of(links_); }
  [[nodiscard]] std::span<const int> descriptors() const override { return {descriptors_.data(), descriptor_count_}; }

 protected:
  static constexpr int kNoDescriptor = -1;

  /// `descriptor` becomes readable if poll() has something to do, once arm() has returned true; kNoDescriptor: there is
  /// none.
  MessageTransport(std::string wire, const StreamShape& shape, const GroupIdentity& identity,
                   std::span<const std::uint32_t> remote, std::span<const std::string> addresses, int descriptor);

  [[nodiscard]] virtual std::unique_ptr<MessageLink> make_link(std::uint32_t rank, const std::string& address) = 0;
  /// Lets the wire make progress; true if anything moved.
  virtual bool poll() = 0;
  /// True: any later event makes the descriptor readable. False: something is there already.
  [[nodiscard]] virtual bool arm() = 0;

  [[nodiscard]] MessageLink& link_to(std::uint32_t peer);
  [[nodiscard]] std::span<MessageLink* const> links() const { return links_; }
  [[nodiscard]] const StreamShape& shape() const { return shape_; }
  [[nodiscard]] const GroupIdentity& identity() const { return identity_; }
  /// Reads the header of a message and returns the link it belongs to, or nullptr for a stranger's.
  [[nodiscard]] MessageLink* recognize(std::span<const std::byte> bytes, MessageHeader& message);
  /// Destroys the links while what they use still exists.
  void forget_links() { static_cast<void>(take_links()); }
  [[nodiscard]] std::vector<std::unique_ptr<MessageLink>> take_links();

  std::exception_ptr caught_;  // an exception that must not be thrown through the wire's own code

 private:
  [[nodiscard]] bool remote(std::uint32_t peer) const;

  std::string wire_;
  StreamShape shape_;
  GroupIdentity identity_;
  std::vector<std::string> addresses_;  // by rank; empty for ranks not reached by this transport
  std::vector<std::unique_ptr<MessageLink>> link_of_rank_;
  std::vector<MessageLink*> links_;
  UniqueFd timer_;  // ends a short nap
  std::array<int, 2> descriptors_{};
  std::size_t descriptor_count_ = 0;
  bool asleep_ = false;
  bool moved_ = false;      // before sleep
  bool strangers_ = false;  // whether messages that are not this group's have arrived
};

}  // namespace syntony
