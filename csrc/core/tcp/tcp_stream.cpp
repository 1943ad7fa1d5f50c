#include "core/tcp/tcp_stream.hpp"

#include <sys/socket.h>

#include <array>
#include <cstring>

namespace syntony {
namespace {

/// So many bytes are copied into one piece, which costs less than to have the kernel collect them.
constexpr std::size_t kOnePiece = 4096;

}  // namespace

ssize_t TcpStream::send(std::span<iovec> pieces) {
  if (session_) return session_->send(pieces);
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  std::size_t bytes = 0;
  for (const iovec& each : pieces) bytes += each.iov_len;
  if (bytes > kOnePiece) {
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    return ::sendmsg(socket_.get(), &message, kFlags);
  }
  std::array<std::byte, kOnePiece> whole;  // not initialized
  std::byte* end = whole.data();
  for (const iovec& each : pieces) {
    std::memcpy(end, each.iov_base, each.iov_len);
    end += each.iov_len;
  }
  return ::send(socket_.get(), whole.data(), bytes, kFlags);
}

ssize_t TcpStream::receive(std::span<iovec> pieces) {
  if (session_) return session_->receive(pieces);
  if (pieces.size() == 1) return ::recv(socket_.get(), pieces.front().iov_base, pieces.front().iov_len, MSG_DONTWAIT);
  return ::readv(socket_.get(), pieces.data(), static_cast<int>(pieces.size()));
}

}  // namespace syntony
