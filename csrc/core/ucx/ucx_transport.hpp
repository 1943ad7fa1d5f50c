// Transport (transport.hpp) over UCX, to ranks of other hosts (on emulated ones UCX finds that they share a machine).
//
//      UcxTransport -- UcxLink (one per neighbour) -- FrameSender, FrameReceiver (one per stream in use)
//            \-- UcxWorker
//
// The control plane stays on TCP, and with it whatever names who has died or disagrees (tcp_control.hpp); UCX's own
// error handling (mode PEER) ends what can no longer be sent. progress() throws as TcpTransport's does.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/process/unique_fd.hpp"
#include "core/transport.hpp"
#include "core/ucx/ucx_link.hpp"
#include "core/ucx/ucx_worker.hpp"

namespace syntony {

class UcxTransport final : public Transport {
 public:
  static constexpr unsigned kMessage = 1;  // the one kind of active message

  UcxTransport(const StreamShape& shape, const GroupIdentity& identity, std::shared_ptr<UcxWorker> worker,
               std::span<const std::uint32_t> remote, std::span<const std::string> addresses);
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;
  ~UcxTransport() override;

  /// Throws Error(invalid) for a rank that is not remote.
  [[nodiscard]] Sender& sender(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) override;
  [[nodiscard]] Receiver& receiver(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) override;
  bool progress() override;
  [[nodiscard]] bool unsent() const override;
  bool drain(std::chrono::milliseconds timeout) override;
  void wake() override;
  void sleeping(bool asleep) override;
  [[nodiscard]] std::span<const int> descriptors() const override { return descriptors_; }

 private:
  [[nodiscard]] UcxLink& link_to(std::uint32_t peer);
  [[nodiscard]] bool remote(std::uint32_t peer) const;
  void take(const void* header, std::size_t header_bytes, const void* data, std::size_t bytes, bool rendezvous);

  StreamShape shape_;
  GroupIdentity identity_;
  std::vector<std::string> addresses_;  // by rank; empty where this transport does not lead
  std::vector<std::unique_ptr<UcxLink>> link_of_rank_;
  std::vector<UcxLink*> links_;
  std::exception_ptr caught_;  // what must not be thrown through UCX
  UniqueFd timer_;             // ends a short nap
  std::array<int, 2> descriptors_{};
  bool asleep_ = false;
  bool moved_ = false;                 // before sleep
  bool strangers_ = false;             // messages that are not this group's have come
  std::shared_ptr<UcxWorker> worker_;  // goes before the links, whose memory it uses
};

}  // namespace syntony
