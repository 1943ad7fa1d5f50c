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

class TcpStream {
 public:
  TcpStream() = default;
  explicit TcpStream(UniqueFd socket, std::unique_ptr<TlsSession> session = nullptr)
      : socket_(std::move(socket)), session_(std::move(session)) {}

  /// The descriptor, or -1 when closed.
  [[nodiscard]] int get() const { return socket_.get(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }
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
    socket_.reset();
  }

 private:
  UniqueFd socket_;  // closed after the session has ended
  std::unique_ptr<TlsSession> session_;
};

}  // namespace syntony
