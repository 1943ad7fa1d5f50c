#include "core/tcp/meeting/tcp_socket.hpp"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

namespace syntony {
namespace {

void set_option(int socket, int level, int name, int value, const char* what) {
  if (setsockopt(socket, level, name, &value, sizeof(value)) != 0) {
    throw system_error(std::string("cannot set ") + what + " to " + std::to_string(value), errno);
  }
}

void tune(int socket, int seconds) {
  constexpr int kMostProbes = 60;  // Linux counts up to 127
  const int idle = seconds / 2;
  const int interval = (seconds - idle + kMostProbes - 1) / kMostProbes;
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, idle, "TCP_KEEPIDLE");
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, interval, "TCP_KEEPINTVL");
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, (seconds - idle + interval - 1) / interval, "TCP_KEEPCNT");
}

}  // namespace

std::string sentence_of(int error_number) {
  if (error_number == EPROTO) return "what arrives does not fit the keys of this connection: does somebody change it?";
  return std::generic_category().message(error_number);
}

Error system_error(const std::string& what, int error_number) {
  return Error(Error::Kind::system, what + " (" + sentence_of(error_number) + ")");
}

UniqueFd open_tcp_socket(int family) {
  UniqueFd result(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!result) throw system_error("cannot open a TCP socket", errno);
  return result;
}

void size_buffers(int socket, const TcpOptions& options) {
  if (options.send_buffer > 0) set_option(socket, SOL_SOCKET, SO_SNDBUF, options.send_buffer, "SO_SNDBUF");
  if (options.receive_buffer > 0) set_option(socket, SOL_SOCKET, SO_RCVBUF, options.receive_buffer, "SO_RCVBUF");
}

void tune_data_socket(int socket, const TcpOptions& options) {
  // Limits the bytes waiting in the kernel: what is there keeps its place in the queue, so credits would wait, too.
  constexpr int kUnsent = 64 * 1024;
  tune(socket, options.keepalive);
  set_option(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsent, "TCP_NOTSENT_LOWAT");
  size_buffers(socket, options);
}

// Unlike SO_RCVBUF, a mark for reading makes room up to half of tcp_rmem's maximum, not of rmem_max, and the kernel may
// make more. It stays when the mark is taken back (Linux 4.18; earlier ones make no room).
void make_room(int socket, std::size_t bytes) {
  set_option(socket, SOL_SOCKET, SO_RCVLOWAT, static_cast<int>(bytes), "SO_RCVLOWAT");
  set_option(socket, SOL_SOCKET, SO_RCVLOWAT, 1, "SO_RCVLOWAT");
}

void tune_control_socket(int socket, const TcpOptions& options) {
  tune(socket, options.keepalive);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, options.keepalive * 1000, "TCP_USER_TIMEOUT");
}

SocketPulse pulse_of(int socket) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  return {.waiting = info.tcpi_unacked > 0 || info.tcpi_probes > 0,
          .unanswered = unsigned{info.tcpi_retransmits} + unsigned{info.tcpi_probes},
          .silent = std::chrono::milliseconds(info.tcpi_last_ack_recv)};
}

bool acknowledged(int socket) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 || info.tcpi_state == TCP_CLOSE) return true;
  return unacknowledged(socket) == 0;
}

std::size_t unacknowledged(int socket) {
  int queued = 0;
  return socket >= 0 && ioctl(socket, SIOCOUTQ, &queued) == 0 ? static_cast<std::size_t>(queued) : 0;
}

}  // namespace syntony
