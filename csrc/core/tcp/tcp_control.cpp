#include "core/tcp/tcp_control.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/tcp/meeting/tcp_socket.hpp"
#include "core/tcp/tcp_message.hpp"

namespace syntony {
namespace {

constexpr std::chrono::milliseconds kLongestGoodbye{1000};
constexpr std::size_t kMeeting = ~std::size_t{0};  // its mark in the epoll set, in the place of a peer's
constexpr int kReadsAtOnce = 16;  // before another peer, and whatever else the owner of progress has to do

epoll_event interest(std::uint32_t events, std::size_t peer) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = peer;
  return event;
}

}  // namespace

TcpControl::TcpControl(const TcpIdentity& identity, std::span<TcpPeer> peers, TcpMeeting* meeting)
    : identity_(identity), meeting_(meeting), epoll_(epoll_create1(EPOLL_CLOEXEC)), descriptor_(epoll_.get()) {
  if (!epoll_) throw system_error("cannot make an epoll set", errno);
  for (TcpPeer& other : peers) {
    Peer& peer = peers_.emplace_back();
    peer.rank = other.rank;
    peer.endpoint = other.endpoint;
    peer.socket = std::move(other.control);
    ranks_.push_back(peer.rank);
    epoll_event event = interest(EPOLLIN | EPOLLRDHUP, peers_.size() - 1);
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, peer.socket.get(), &event) != 0) {
      throw system_error("cannot watch a socket", errno);
    }
  }
  if (meeting_ == nullptr) return;
  epoll_event event = interest(EPOLLIN, kMeeting);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, meeting_->descriptor(), &event) != 0) {
    throw system_error("cannot watch for connections", errno);
  }
}

const TcpControl::Peer& TcpControl::peer_of(std::uint32_t rank) const {
  const auto found = std::ranges::find(peers_, rank, &Peer::rank);
  if (found == peers_.end()) {
    throw Error(Error::Kind::invalid, "rank " + std::to_string(rank) + " is not reached by TCP");
  }
  return *found;
}

// ---- what this rank says

void TcpControl::announce(const Descriptor& started) {
  const auto alike = [&](const Descriptor& old) { return old.priority == started.priority; };
  if (std::ranges::count_if(started_, alike) == kRemembered) started_.erase(std::ranges::find_if(started_, alike));
  started_.push_back(started);
  if (!std::exchange(curious_, false)) return;
  for (Peer& peer : peers_) {
    if (std::exchange(peer.curious, false)) answer(peer);
  }
}

void TcpControl::inquire() {
  for (Peer& peer : peers_) {
    if (peer.status.state != PeerStatus::State::alive || std::exchange(peer.asked, true)) continue;
    send(peer, ControlPrefix::Kind::inquire);
  }
}

void TcpControl::abort(const Abort& reason) {
  if (std::exchange(told_, true)) return;
  if (!aborted_) aborted_ = reason;
  // Also what was heard from a peer: the others must have it before our goodbye, or they would blame us for leaving.
  const std::vector<std::byte> body = encode(*aborted_);
  for (Peer& peer : peers_) send(peer, ControlPrefix::Kind::abort, body);
}

void TcpControl::post(std::uint64_t number, std::string_view message) {
  check_post(message);
  std::vector<std::byte> body(sizeof(number) + message.size());
  std::memcpy(body.data(), &number, sizeof(number));
  std::ranges::copy(std::as_bytes(std::span(message)), body.begin() + sizeof(number));
  for (Peer& peer : peers_) send(peer, ControlPrefix::Kind::post, body);
}

void TcpControl::leave() {
  using Clock = std::chrono::steady_clock;
  for (Peer& peer : peers_) {
    answer(peer);  // what we have completed: peers that still work on it must not miss us
    send(peer, ControlPrefix::Kind::leave);
  }
  const Clock::time_point deadline = Clock::now() + kLongestGoodbye;
  for (Peer& peer : peers_) {
    while (peer.socket && (!peer.outbox.empty() || !acknowledged(peer.socket.get())) && Clock::now() < deadline) {
      // Acknowledgements cause no event, hence the millisecond.
      pollfd room{peer.socket.get(), static_cast<short>(peer.outbox.empty() ? 0 : POLLOUT), 0};
      poll(&room, 1, 1);
      write(peer);
    }
  }
}

void TcpControl::answer(Peer& peer) {
  send(peer, ControlPrefix::Kind::status, encode(ControlStatus{completed_, started_}));
}

void TcpControl::send(Peer& peer, ControlPrefix::Kind kind, std::span<const std::byte> body) {
  if (!peer.socket) return;
  const ControlPrefix prefix{
      .kind = kind, .token = identity_.frame_token(), .length = static_cast<std::uint32_t>(body.size())};
  const auto* head = reinterpret_cast<const std::byte*>(&prefix);
  peer.outbox.insert(peer.outbox.end(), head, head + sizeof(prefix));
  peer.outbox.insert(peer.outbox.end(), body.begin(), body.end());
  write(peer);
}

void TcpControl::write(Peer& peer) {
  const bool waited = !peer.outbox.empty();
  while (peer.socket && !peer.outbox.empty()) {
    const ssize_t n = ::send(peer.socket.get(), peer.outbox.data(), peer.outbox.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      peer.outbox.erase(peer.outbox.begin(), peer.outbox.begin() + n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM) {
      break;  // later: nobody says it again
    } else if (errno != EINTR) {
      // Broken for writing; what the peer said before, a goodbye perhaps, is still to be read.
      peer.outbox.clear();
    }
  }
  if (!peer.socket || !waited) return;
  const std::uint32_t events = EPOLLIN | EPOLLRDHUP | (peer.outbox.empty() ? 0U : EPOLLOUT);
  epoll_event event = interest(events, static_cast<std::size_t>(&peer - peers_.data()));
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, peer.socket.get(), &event);
}

// ---- what the peers say

PeerStatus TcpControl::status(std::uint32_t peer) const { return peer_of(peer).status; }

std::string TcpControl::end_of(std::uint32_t peer) const { return peer_of(peer).end; }

std::optional<Descriptor> TcpControl::announced(std::uint32_t peer, Priority priority, std::uint64_t sequence) const {
  const std::vector<Descriptor>& started = peer_of(peer).started;
  const auto found = std::ranges::find_if(
      started, [&](const Descriptor& one) { return one.priority == priority && one.sequence == sequence; });
  return found == started.end() ? std::nullopt : std::optional(*found);
}

std::optional<Descriptor> TcpControl::announced(std::uint32_t peer, std::uint64_t ordinal) const {
  const std::vector<Descriptor>& started = peer_of(peer).started;
  const auto found = std::ranges::find(started, ordinal, &Descriptor::ordinal);
  return found == started.end() ? std::nullopt : std::optional(*found);
}

std::optional<std::string> TcpControl::posted(std::uint32_t peer, std::uint64_t number) const {
  const auto& [held, text] = peer_of(peer).posts[post_slot(number)];
  return held == number ? std::optional(text) : std::nullopt;
}

void TcpControl::progress() {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    if (events[static_cast<std::size_t>(i)].data.u64 == kMeeting) {
      meeting_->progress();
      continue;
    }
    Peer& peer = peers_[events[static_cast<std::size_t>(i)].data.u64];
    if ((events[static_cast<std::size_t>(i)].events & EPOLLOUT) != 0) write(peer);
    read(peer);
  }
}

void TcpControl::read(Peer& peer) {
  std::array<std::byte, 4096> bytes;
  for (int turn = 0; peer.socket && turn < kReadsAtOnce; ++turn) {
    const ssize_t n = recv(peer.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n > 0) {
      peer.inbox.insert(peer.inbox.end(), bytes.begin(), bytes.begin() + n);
      if (!take_messages(peer)) {
        finish(peer, PeerStatus::State::dead, "was disconnected: it sent a control message that cannot be believed");
      }
    } else if (n == 0) {
      finish(peer, PeerStatus::State::dead, "closed its connection without a goodbye");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      finish(peer, PeerStatus::State::dead, "lost its connection (" + sentence_of(errno) + ")");
    }
  }
}

bool TcpControl::take_messages(Peer& peer) {
  std::span<const std::byte> rest = peer.inbox;
  while (rest.size() >= sizeof(ControlPrefix)) {
    ControlPrefix prefix;
    std::memcpy(&prefix, rest.data(), sizeof(prefix));
    if (prefix.magic != ControlPrefix::kMagic || prefix.token != identity_.frame_token() || prefix.zero != 0 ||
        prefix.length > kLargestBody) {
      return false;
    }
    if (rest.size() - sizeof(prefix) < prefix.length) break;
    if (!take(peer, prefix.kind, rest.subspan(sizeof(prefix), prefix.length))) return false;
    if (!peer.socket) return true;  // it left: nothing after a goodbye counts
    rest = rest.subspan(sizeof(prefix) + prefix.length);
  }
  peer.inbox.erase(peer.inbox.begin(), peer.inbox.end() - static_cast<std::ptrdiff_t>(rest.size()));
  return true;
}

bool TcpControl::take(Peer& peer, ControlPrefix::Kind kind, std::span<const std::byte> body) {
  switch (kind) {
    case ControlPrefix::Kind::inquire:
      if (peer.outbox.size() > kLargestBody) {
        finish(peer, PeerStatus::State::dead, "was disconnected: it asks again and again and reads no answer");
        return true;
      }
      answer(peer);
      peer.curious = curious_ = true;
      return body.empty();
    case ControlPrefix::Kind::status:
      return take_status(peer, body);
    case ControlPrefix::Kind::abort: {
      std::optional<Abort> abort = decode_abort(body);
      if (!abort) return false;
      if (!aborted_) aborted_ = std::move(abort);
      return true;
    }
    case ControlPrefix::Kind::post:
      return take_post(peer, body);
    case ControlPrefix::Kind::leave:
      finish(peer, PeerStatus::State::left, "left the group");
      return body.empty();
  }
  return false;
}

bool TcpControl::take_status(Peer& peer, std::span<const std::byte> body) {
  std::optional<ControlStatus> status = decode_status(body);
  if (!status || status->started.size() > kRemembered * kPriorities) return false;
  peer.asked = false;
  peer.started = std::move(status->started);
  peer.status.known = true;
  peer.status.completed = status->completed;
  peer.status.started = {};
  for (const Descriptor& started : peer.started) peer.status.started[index_of(started.priority)] = started;
  return true;
}

bool TcpControl::take_post(Peer& peer, std::span<const std::byte> body) {
  std::uint64_t number = 0;
  if (body.size() < sizeof(number) || body.size() > sizeof(number) + kLongestPost) return false;
  std::memcpy(&number, body.data(), sizeof(number));
  const auto text = body.subspan(sizeof(number));
  peer.posts[post_slot(number)] = {number, std::string(reinterpret_cast<const char*>(text.data()), text.size())};
  return true;
}

void TcpControl::finish(Peer& peer, PeerStatus::State state, std::string end) {
  if (peer.status.state == PeerStatus::State::alive) {
    peer.status.state = state;
    peer.end = std::move(end);
  }
  peer.socket.reset();
  peer.inbox.clear();
  peer.outbox.clear();
}

}  // namespace syntony
