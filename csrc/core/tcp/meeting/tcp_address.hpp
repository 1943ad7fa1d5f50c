// One TCP endpoint as a value: `10.0.0.4:4242` or `[fd00::2]:4242`. Numeric only: names are never looked up, because a
// host's own name too often resolves to 127.0.1.1.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace syntony {

class TcpAddress {
 public:
  TcpAddress() = default;
  /// Converts a result of getifaddrs, getsockname or accept; empty for families other than IPv4 and IPv6.
  [[nodiscard]] static std::optional<TcpAddress> from(const sockaddr* address);
  [[nodiscard]] static std::optional<TcpAddress> parse(std::string_view text);
  /// The local or the remote end of a socket. Throws Error(system).
  [[nodiscard]] static TcpAddress local(int socket);
  [[nodiscard]] static TcpAddress remote(int socket);

  [[nodiscard]] std::string text() const;
  [[nodiscard]] int family() const { return storage_.ss_family; }
  [[nodiscard]] std::uint16_t port() const { return ntohs(family() == AF_INET6 ? v6().sin6_port : v4().sin_port); }
  /// True if only the ports may differ.
  [[nodiscard]] bool same_host(const TcpAddress& other) const { return at(0).text() == other.at(0).text(); }
  /// The same host with another port.
  [[nodiscard]] TcpAddress at(std::uint16_t port) const;
  [[nodiscard]] bool loopback() const;
  /// fe80::/10 and 169.254/16: meaningless on another machine without its interface.
  [[nodiscard]] bool link_local() const;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t length() const;

 private:
  [[nodiscard]] const sockaddr_in& v4() const { return reinterpret_cast<const sockaddr_in&>(storage_); }
  [[nodiscard]] const sockaddr_in6& v6() const { return reinterpret_cast<const sockaddr_in6&>(storage_); }

  sockaddr_storage storage_{};
};

}  // namespace syntony
