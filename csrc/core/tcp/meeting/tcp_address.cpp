#include "core/tcp/meeting/tcp_address.hpp"

#include <arpa/inet.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {

std::optional<TcpAddress> TcpAddress::from(const sockaddr* address) {
  if (address == nullptr || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) return std::nullopt;
  TcpAddress result;
  std::memcpy(&result.storage_, address, address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  return result;
}

std::optional<TcpAddress> TcpAddress::parse(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  const std::string_view digits = text.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (failure != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  if (text.find('\0') != text.npos) return std::nullopt;  // inet_pton would not see what follows

  std::string host(text.substr(0, colon));
  TcpAddress result;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    auto& address = reinterpret_cast<sockaddr_in6&>(result.storage_);
    if (inet_pton(AF_INET6, host.c_str(), &address.sin6_addr) != 1) return std::nullopt;
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
  } else {
    auto& address = reinterpret_cast<sockaddr_in&>(result.storage_);
    if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return std::nullopt;
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
  }
  return result;
}

TcpAddress TcpAddress::local(int socket) {
  TcpAddress result;
  socklen_t length = sizeof(result.storage_);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&result.storage_), &length) != 0) {
    throw system_error("cannot ask a socket for its own address", errno);
  }
  return result;
}

TcpAddress TcpAddress::remote(int socket) {
  TcpAddress result;
  socklen_t length = sizeof(result.storage_);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&result.storage_), &length) != 0) {
    throw system_error("cannot ask a socket for its peer's address", errno);
  }
  return result;
}

TcpAddress TcpAddress::at(std::uint16_t port) const {
  TcpAddress result = *this;
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(result.storage_).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(result.storage_).sin_port = htons(port);
  }
  return result;
}

std::string TcpAddress::text() const {
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (family() == AF_INET) {
    inet_ntop(AF_INET, &v4().sin_addr, host.data(), host.size());
    return std::string(host.data()) + ":" + std::to_string(port());
  }
  if (family() == AF_INET6) {
    inet_ntop(AF_INET6, &v6().sin6_addr, host.data(), host.size());
    return "[" + std::string(host.data()) + "]:" + std::to_string(port());
  }
  return "(no address)";
}

bool TcpAddress::loopback() const {
  if (family() == AF_INET) return (ntohl(v4().sin_addr.s_addr) >> 24) == 127;
  return IN6_IS_ADDR_LOOPBACK(&v6().sin6_addr);
}

bool TcpAddress::link_local() const {
  if (family() == AF_INET) return (ntohl(v4().sin_addr.s_addr) >> 16) == 0xa9fe;
  return IN6_IS_ADDR_LINKLOCAL(&v6().sin6_addr);
}

socklen_t TcpAddress::length() const { return family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6); }

}  // namespace syntony
