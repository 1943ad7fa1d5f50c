// Datagrams: a UDP socket that sends and takes packets many at a time. What the kernel does not take is lost, as on the
// wire. Packets say that they know of congestion marks (RFC 3168); one that a switch has marked comes with kMarked.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/in_network/aggregation_wire.hpp"
#include "core/process/unique_fd.hpp"
#include "core/tcp/meeting/tcp_address.hpp"

namespace syntony {

class Datagrams {
 public:
  struct Message {
    AggregationPacket head;  // `length` says how many bytes of the payload go along
    const std::byte* payload = nullptr;
    const TcpAddress* to = nullptr;
  };

  static constexpr std::size_t kAtOnce = 32;

  /// Bound to the host of `address` and `port` (0: a free one). `longest`: bytes of the largest payload that is taken.
  /// Throws Error(system).
  Datagrams(const TcpAddress& address, std::uint16_t port, std::size_t longest);

  [[nodiscard]] int get() const { return socket_.get(); }
  [[nodiscard]] std::uint16_t port() const { return TcpAddress::local(socket_.get()).port(); }

  void send(std::span<const Message> messages) const;

  /// Calls `take(head, payload)` for each of the packets that have come, kAtOnce at most, and returns how many came.
  /// What is no packet of ours is passed over.
  template <typename Take>
  std::size_t receive(const Take& take) {
    const std::size_t came = fetch();
    for (std::size_t i = 0; i < came; ++i) {
      if (const AggregationPacket* const head = packet(i)) take(*head, payload(i));
    }
    return came;
  }

 private:
  [[nodiscard]] std::size_t fetch();
  [[nodiscard]] const AggregationPacket* packet(std::size_t i);
  [[nodiscard]] const std::byte* payload(std::size_t i) const { return room_.data() + i * stride_; }

  UniqueFd socket_;
  std::size_t stride_;
  std::vector<std::byte> room_;  // for payloads, aligned as wire formats need it
  std::vector<AggregationPacket> heads_ = std::vector<AggregationPacket>(kAtOnce);
  std::array<mmsghdr, kAtOnce> incoming_{};
  std::array<iovec, 2 * kAtOnce> pieces_{};
  struct alignas(cmsghdr) Told {
    std::array<std::byte, CMSG_SPACE(sizeof(int))> bytes;
  };
  std::array<Told, kAtOnce> told_{};  // what the kernel says of each
};

}  // namespace syntony
