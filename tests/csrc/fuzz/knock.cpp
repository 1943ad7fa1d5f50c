#include "fuzz/knock.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "core/process/unique_fd.hpp"

namespace syntony::fuzz {

Bytes answer_of(const TcpAddress& door, std::span<const std::byte> input) {
  const UniqueFd socket(::socket(door.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Closing resets the connection: a million closed ones would otherwise use up the ports of loopback.
  const linger hard{1, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  require(connect(socket.get(), door.get(), door.length()) == 0, "nobody listens any more");
  (void)!send(socket.get(), input.data(), input.size(), MSG_NOSIGNAL);  // it may have hung up before everything is sent
  shutdown(socket.get(), SHUT_WR);
  Bytes answer;
  std::array<std::byte, 4096> piece{};
  for (;;) {
    const ssize_t n = recv(socket.get(), piece.data(), piece.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return answer;  // closed, or reset before it had read everything
    answer.insert(answer.end(), piece.begin(), piece.begin() + n);
  }
}

}  // namespace syntony::fuzz
