#include "core/tcp/tcp_transport.hpp"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "core/error.hpp"
#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {

TcpTransport::TcpTransport(const StreamShape& shape, const TcpIdentity& identity, std::span<TcpPeer> peers)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), descriptor_(epoll_.get()), link_of_rank_(shape.ranks) {
  if (!epoll_) throw system_error("cannot make an epoll set", errno);
  for (TcpPeer& peer : peers) {
    links_.push_back(
        std::make_unique<TcpLink>(shape, identity, peer.rank, peer.endpoint, std::exchange(peer.flows, {})));
    TcpLink& link = *links_.back();
    link_of_rank_.at(peer.rank) = &link;
    for (std::size_t flow = 0; flow < link.flows().size(); ++flow) {
      const FlowPlace place{static_cast<std::uint32_t>(links_.size() - 1), static_cast<std::uint32_t>(flow)};
      epoll_event event{};
      event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
      event.data.u64 = std::bit_cast<std::uint64_t>(place);
      if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, link.flows()[flow].socket(), &event) != 0) {
        throw system_error("cannot watch a socket", errno);
      }
      readable_.push_back(place);
    }
  }
}

TcpLink& TcpTransport::link_to(std::uint32_t peer) {
  if (peer >= link_of_rank_.size() || link_of_rank_[peer] == nullptr) {
    throw Error(Error::Kind::invalid, "rank " + std::to_string(peer) + " is not reached by TCP");
  }
  return *link_of_rank_[peer];
}

Sender& TcpTransport::sender(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) {
  return link_to(peer).sender({channel, window});
}

Receiver& TcpTransport::receiver(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) {
  return link_to(peer).receiver({channel, window});
}

bool TcpTransport::progress() {
  // Events first: what became writable is written now, so that `false` means that only a new event can change anything.
  notice_events();
  bool moved = write_all();
  std::size_t kept = 0;
  for (const FlowPlace place : readable_) {  // what is kept moves down to a place that has been read
    TcpFlow& flow = links_[place.link]->flows()[place.flow];
    if (flow.readable()) moved |= links_[place.link]->read(flow);
    if (flow.readable()) readable_[kept++] = place;
  }
  readable_.resize(kept);
  for (const std::unique_ptr<TcpLink>& link : links_) {
    if (std::optional<Error> fault = link->take_fault()) throw *std::move(fault);
  }
  return moved;
}

void TcpTransport::wake() { write_all(); }

bool TcpTransport::unsent() const {
  return std::ranges::any_of(links_, [](const std::unique_ptr<TcpLink>& link) { return link->unsent(); });
}

bool TcpTransport::write_all() {
  bool moved = false;
  for (const std::unique_ptr<TcpLink>& link : links_) {
    if (link->wants_write()) moved |= link->write();
  }
  return moved;
}

void TcpTransport::notice_events() {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const auto place =
        std::bit_cast<FlowPlace>(static_cast<std::uint64_t>(events[static_cast<std::size_t>(i)].data.u64));
    TcpFlow& flow = links_[place.link]->flows()[place.flow];
    const bool listed = flow.readable();
    flow.became_ready(events[static_cast<std::size_t>(i)].events);
    if (flow.readable() && !listed) readable_.push_back(place);
  }
}

bool TcpTransport::drain(std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + timeout;
  try {
    for (;;) {
      const bool moved = progress();
      if (std::ranges::all_of(links_, &TcpLink::flushed, [](const auto& link) -> const TcpLink& { return *link; })) {
        return true;
      }
      if (Clock::now() >= deadline) return false;
      // Acknowledgements cause no event, hence the millisecond.
      pollfd events{descriptor_, POLLIN, 0};
      if (!moved) poll(&events, 1, 1);
    }
  } catch (const Error&) {
    return false;
  }
}

}  // namespace syntony
