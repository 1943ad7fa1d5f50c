// Datagrams: a UDP socket that sends and receives many packets at a time. What the kernel does not accept is lost, as
// on the wire. Packets declare ECN support (RFC 3168); one that a switch has marked arrives with kMarked.
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
    AggregationPacket head;  // `length`: payload bytes that follow
    const std::byte* payload = nullptr;
    const TcpAddress* to = nullptr;
  };

  static constexpr std::size_t kAtOnce = 32;

  /// Bound to the host of `address` and `port` (0: any free one). `longest`: largest accepted payload in bytes. Throws
  /// Error(system).
  Datagrams(const TcpAddress& address, std::uint16_t port, std::size_t longest);

  [[nodiscard]] int get() const { return socket_.get(); }
  [[nodiscard]] std::uint16_t port() const { return TcpAddress::local(socket_.get()).port(); }

  void send(std::span<const Message> messages) const;

  /// Calls `take(head, payload)` for each packet that has arrived, at most kAtOnce, and returns how many arrived.
  /// Packets that are not ours are skipped.
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
  std::vector<std::byte> room_;  // for payloads, aligned as wire formats need
  std::vector<AggregationPacket> heads_ = std::vector<AggregationPacket>(kAtOnce);
  std::array<mmsghdr, kAtOnce> incoming_{};
  std::array<iovec, 2 * kAtOnce> pieces_{};
  struct alignas(cmsghdr) Told {
    std::array<std::byte, CMSG_SPACE(sizeof(int))> bytes;
  };
  std::array<Told, kAtOnce> told_{};  // the kernel's information about each
};

}  // namespace syntony
