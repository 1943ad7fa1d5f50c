// A connected socket of a group, and the session that encrypts what goes over it, if ranks want that.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <memory>
#include <span>
#include <utility>

#include "core/process/unique_fd.hpp"
#include "core/tls/tls_session.hpp"

namespace syntony {

class TcpStream : public UniqueFd {
 public:
  using UniqueFd::UniqueFd;
  TcpStream() = default;
  TcpStream(UniqueFd socket) : UniqueFd(std::move(socket)) {}  // NOLINT(google-explicit-constructor): in the plain
  TcpStream(UniqueFd socket, std::unique_ptr<TlsSession> session)
      : UniqueFd(std::move(socket)), session_(std::move(session)) {}

  [[nodiscard]] bool encrypted() const { return session_ != nullptr; }
  /// As sendmsg and readv that never wait and raise no signal, but see TlsSession.
  [[nodiscard]] ssize_t send(std::span<iovec> pieces);
  [[nodiscard]] ssize_t receive(std::span<iovec> pieces);
  /// send() must be called again, perhaps with nothing.
  [[nodiscard]] bool pending() const { return session_ != nullptr && session_->pending(); }
  /// True once, when sending is worth another try although the socket has not said so.
  [[nodiscard]] bool take_opened() { return session_ != nullptr && session_->take_opened(); }
  void close() {
    session_.reset();
    reset();
  }

 private:
  std::unique_ptr<TlsSession> session_;
};

}  // namespace syntony
