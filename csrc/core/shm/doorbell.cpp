#include "core/shm/doorbell.hpp"

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
  constexpr int kAtOnce = 64;  // a stranger that rings without end shall not keep us at the door
  char nothing = 0;
  for (int i = 0; i < kAtOnce && ::recv(socket_.get(), &nothing, sizeof(nothing), MSG_DONTWAIT) >= 0; ++i) {
  }
}

void Doorbell::ring(const std::string& address) const {
  const UnixName name(address);
  ::sendto(socket_.get(), nullptr, 0, MSG_DONTWAIT | MSG_NOSIGNAL, name.get(), name.length);
}

}  // namespace syntony
