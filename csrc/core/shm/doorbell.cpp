#include "core/shm/doorbell.hpp"

#include <array>

#include "core/shm/unix_socket.hpp"

namespace syntony {

std::string fresh_unix_address() {
  const Token token = random_token();
  return "syntony-" + std::to_string(token[0]) + "-" + std::to_string(token[1]);
}

Doorbell::Doorbell() : address_(fresh_unix_address()), socket_(unix_socket(SOCK_DGRAM | SOCK_NONBLOCK)) {
  bind_to(socket_, address_);
}

void Doorbell::answer() const {
  constexpr unsigned kAtOnce = 32;  // exceeds the default net.unix.max_dgram_qlen
  std::array<mmsghdr, kAtOnce> rings{};
  ::recvmmsg(socket_.get(), rings.data(), rings.size(), MSG_DONTWAIT, nullptr);
}

void Doorbell::ring(const std::string& address) const {
  const UnixName name(address);
  ::sendto(socket_.get(), nullptr, 0, MSG_DONTWAIT | MSG_NOSIGNAL, name.get(), name.length);
}

}  // namespace syntony
