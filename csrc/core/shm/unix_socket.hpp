// Unix sockets with names in the abstract namespace: nothing in a file system, gone with their process.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <string_view>

#include "core/error.hpp"
#include "core/process/host.hpp"
#include "core/process/unique_fd.hpp"

namespace syntony {

struct UnixName {
  explicit UnixName(std::string_view address) {
    constexpr std::size_t kBegin = offsetof(sockaddr_un, sun_path) + 1;
    if (address.size() >= sizeof(name.sun_path)) throw Error(Error::Kind::system, "a Unix address is too long");
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path + 1, address.data(), address.size());
    length = static_cast<socklen_t>(kBegin + address.size());
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }

  sockaddr_un name{};
  socklen_t length = 0;
};

/// `kind`: SOCK_DGRAM or SOCK_SEQPACKET, plus flags. Throws Error(system).
[[nodiscard]] inline UniqueFd unix_socket(int kind) {
  UniqueFd socket(::socket(AF_UNIX, kind | SOCK_CLOEXEC, 0));
  if (!socket) throw Error(Error::Kind::system, system_sentence("cannot open a Unix socket"));
  return socket;
}

/// Binds `socket` to `address`. Throws Error(system).
inline void bind_to(const UniqueFd& socket, std::string_view address) {
  const UnixName name(address);
  if (::bind(socket.get(), name.get(), name.length) != 0) {
    throw Error(Error::Kind::system, system_sentence("cannot name a Unix socket"));
  }
}

}  // namespace syntony
