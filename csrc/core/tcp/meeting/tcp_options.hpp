// User settings for TCP, read from the environment once per group.
//
//   SYNTONY_SOCKET_IFNAME  interfaces to use, see tcp_interfaces.hpp for the grammar (default: all that are up)
//   SYNTONY_TCP_FLOWS      data sockets per pair of ranks, 1..64 (default: one for each rail; in clouds that
//                          limit a connection, 4 or 8); equal on all ranks
//   SYNTONY_TCP_SNDBUF     SO_SNDBUF of data sockets in bytes (default: the kernel tunes it)
//   SYNTONY_TCP_RCVBUF     SO_RCVBUF of data sockets in bytes (default: the kernel tunes it)
//   SYNTONY_TCP_KEEPALIVE  seconds after which a host that has vanished is given up, 2..3600 (default: 10)
//   SYNTONY_ENCRYPTION     tls: everything that ranks of different hosts send each other is encrypted; equal on all
//   ranks SYNTONY_DEBUG=INFO     one line on stderr says where this rank listens and why
#pragma once

#include <cstdint>
#include <string>

namespace syntony {

struct TcpOptions {
  // GCC asks for the braces where a designated initializer leaves the member out.
  std::string interfaces{};  // NOLINT(readability-redundant-member-init)
  std::uint32_t flows = 0;   // 0: as TcpEndpoints::flows_with returns
  int send_buffer = 0;       // bytes; 0 leaves it to the kernel
  int receive_buffer = 0;    // bytes; 0 leaves it to the kernel
  int keepalive = 10;        // seconds
  bool encrypts = false;

  static constexpr std::uint32_t kMostFlows = 64;

  /// Throws Error(invalid) with the variable, its value and what would be valid.
  [[nodiscard]] static TcpOptions from_environment();
  /// SYNTONY_ENCRYPTION: "tls", or "none". Throws as above.
  [[nodiscard]] static std::string encryption_wanted();
};

}  // namespace syntony
