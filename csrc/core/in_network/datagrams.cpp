#include "core/in_network/datagrams.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "core/error.hpp"
#include "core/sizes.hpp"
#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {
namespace {

constexpr int kBufferBytes = 8_MiB;  // each worker's whole window may arrive while this process sleeps
constexpr int kPatienceMs = 2;       // wait for a full socket before its packets are dropped

constexpr int kKnowsMarks = 2;  // ECN bits: supports congestion marks
constexpr unsigned kMarkedAs = 3;

void know_marks(int socket, int family) {
  const int on = 1;
  const bool six = family == AF_INET6;
  const int level = six ? static_cast<int>(IPPROTO_IPV6) : static_cast<int>(IPPROTO_IP);
  (void)setsockopt(socket, level, six ? IPV6_TCLASS : IP_TOS, &kKnowsMarks, sizeof(kKnowsMarks));
  (void)setsockopt(socket, level, six ? IPV6_RECVTCLASS : IP_RECVTOS, &on, sizeof(on));
}

bool marked(msghdr& message) {
  const cmsghdr* const said = CMSG_FIRSTHDR(&message);
  if (said == nullptr) return false;
  // A byte with IPv4, an int with IPv6; the lowest bits are in the first byte of both.
  unsigned char bits = 0;
  if (said->cmsg_len >= CMSG_LEN(1)) std::memcpy(&bits, CMSG_DATA(said), 1);
  return (bits & kMarkedAs) == kMarkedAs;
}

void make_room(int socket, int forced, int plain) {
  if (setsockopt(socket, SOL_SOCKET, forced, &kBufferBytes, sizeof(kBufferBytes)) == 0) return;
  (void)setsockopt(socket, SOL_SOCKET, plain, &kBufferBytes, sizeof(kBufferBytes));
}

}  // namespace

Datagrams::Datagrams(const TcpAddress& address, std::uint16_t port, std::size_t longest)
    : socket_(::socket(address.family(), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
      stride_((longest + 63) / 64 * 64),
      room_(kAtOnce * stride_) {
  if (!socket_) throw system_error("cannot make a UDP socket", errno);
  const TcpAddress place = address.at(port);
  if (bind(socket_.get(), place.get(), place.length()) != 0) {
    throw system_error("cannot take UDP packets at " + address.text(), errno);
  }
  make_room(socket_.get(), SO_RCVBUFFORCE, SO_RCVBUF);
  make_room(socket_.get(), SO_SNDBUFFORCE, SO_SNDBUF);
  know_marks(socket_.get(), address.family());
  for (std::size_t i = 0; i < kAtOnce; ++i) {
    pieces_[2 * i] = {&heads_[i], sizeof(AggregationPacket)};
    pieces_[2 * i + 1] = {room_.data() + i * stride_, stride_};
    incoming_[i].msg_hdr.msg_iov = &pieces_[2 * i];
    incoming_[i].msg_hdr.msg_iovlen = 2;
    incoming_[i].msg_hdr.msg_control = &told_[i];
  }
}

void Datagrams::send(std::span<const Message> messages) const {
  std::array<mmsghdr, kAtOnce> out{};
  std::array<iovec, 2 * kAtOnce> pieces{};
  for (std::size_t begin = 0; begin < messages.size(); begin += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, messages.size() - begin);
    for (std::size_t i = 0; i < count; ++i) {
      const Message& message = messages[begin + i];
      pieces[2 * i] = {const_cast<AggregationPacket*>(&message.head), sizeof(AggregationPacket)};
      pieces[2 * i + 1] = {const_cast<std::byte*>(message.payload), message.head.length};
      out[i] = {};
      out[i].msg_hdr.msg_iov = &pieces[2 * i];
      out[i].msg_hdr.msg_iovlen = 2;
      out[i].msg_hdr.msg_name = const_cast<sockaddr*>(message.to->get());
      out[i].msg_hdr.msg_namelen = message.to->length();
    }
    std::size_t gone = 0;
    bool waited = false;
    while (gone < count) {
      const int sent = sendmmsg(socket_.get(), &out[gone], static_cast<unsigned>(count - gone), 0);
      if (sent > 0) {
        gone += static_cast<std::size_t>(sent);
        waited = false;
      } else if (errno == EINTR) {
        continue;
      } else if ((errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) && !waited) {
        pollfd entry{socket_.get(), POLLOUT, 0};
        poll(&entry, 1, kPatienceMs);
        waited = true;
      } else {  // an error caused by an earlier packet, such as an unreachable port: this one may succeed
        ++gone;
      }
    }
  }
}

std::size_t Datagrams::fetch() {
  for (mmsghdr& one : incoming_) one.msg_hdr.msg_controllen = sizeof(Told);
  const int came = recvmmsg(socket_.get(), incoming_.data(), kAtOnce, MSG_DONTWAIT, nullptr);
  return came > 0 ? static_cast<std::size_t>(came) : 0;
}

const AggregationPacket* Datagrams::packet(std::size_t i) {
  AggregationPacket& head = heads_[i];
  const bool whole = (incoming_[i].msg_hdr.msg_flags & MSG_TRUNC) == 0 && incoming_[i].msg_len >= sizeof(head) &&
                     incoming_[i].msg_len == sizeof(head) + head.length;
  const bool ours = whole && head.magic == kAggregationMagic && head.depth <= kDeepestPath;
  if (ours && marked(incoming_[i].msg_hdr)) head.flags |= AggregationPacket::kMarked;
  return ours && head.format < kNumberFormats.size() && head.count <= head.elements ? &head : nullptr;
}

}  // namespace syntony
