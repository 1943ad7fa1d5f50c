#include "core/tcp/tcp_transport.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "core/error.hpp"
#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {

TcpTransport::TcpTransport(const StreamShape& shape, const GroupIdentity& identity, std::span<TcpPeer> peers,
                           TcpMeeting* meeting, std::span<const std::uint32_t> remote)
    : shape_(shape),
      identity_(identity),
      meeting_(meeting),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      descriptor_(epoll_.get()),
      link_of_rank_(shape.ranks, kStranger) {
  if (!epoll_) throw system_error("cannot make an epoll set", errno);
  for (const std::uint32_t rank : remote) link_of_rank_.at(rank) = kNoLink;
  for (TcpPeer& peer : peers) {
    if (remote.empty()) link_of_rank_.at(peer.rank) = kNoLink;
    if (peer.flows.empty()) continue;
    TcpLink& link = make_link(peer.rank, peer.flows.size());
    for (std::size_t flow = 0; flow < peer.flows.size(); ++flow) {
      open(link, static_cast<std::uint16_t>(flow), std::move(peer.flows[flow]), peer.endpoint);
    }
    peer.flows.clear();
  }
  if (meeting_ == nullptr) return;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = std::bit_cast<std::uint64_t>(kMeeting);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, meeting_->descriptor(), &event) != 0) {
    throw system_error("cannot watch for connections", errno);
  }
}

TcpLink& TcpTransport::link_to(std::uint32_t peer) {
  if (peer >= link_of_rank_.size() || link_of_rank_[peer] == kStranger) {
    throw Error(Error::Kind::invalid, "rank " + std::to_string(peer) + " is not reached by TCP");
  }
  if (link_of_rank_[peer] == kNoLink) return make_link(peer, meeting_->flows_with(peer));
  return *links_[link_of_rank_[peer]];
}

TcpLink& TcpTransport::make_link(std::uint32_t peer, std::size_t flows) {
  if (flows > 1 && !timer_) {
    timer_ = UniqueFd(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    event.data.u64 = std::bit_cast<std::uint64_t>(kClock);
    if (!timer_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &event) != 0) {
      throw system_error("cannot make a timer", errno);
    }
  }
  link_of_rank_[peer] = static_cast<std::uint32_t>(links_.size());
  sockets_ += flows;
  const auto avoid = [this](const TcpAddress& local, std::size_t instead) {
    if (meeting_ != nullptr) meeting_->avoid(local, instead);
  };
  const auto replace = [this, peer](std::uint16_t number, const TcpAddress& local) {
    if (meeting_ != nullptr) meeting_->replace(peer, number, local);
  };
  TcpLink::Requests requests{.call = [this, peer] { meeting_->call(peer); }, .avoid = avoid, .replace = replace};
  return *links_.emplace_back(std::make_unique<TcpLink>(shape_, identity_, peer, flows, std::move(requests)));
}

void TcpTransport::open(TcpLink& link, std::uint16_t number, TcpStream socket, std::string endpoint) {
  if (!link.expects(number)) return;
  const FlowPlace place{link_of_rank_[link.rank()], static_cast<std::uint32_t>(link.flow_of(number))};
  make_room(socket.get(), std::size_t{shape_.depth} * shape_.slot_bytes);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = std::bit_cast<std::uint64_t>(place);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    throw system_error("cannot watch a socket", errno);
  }
  Wires::Watched watched = wires_->watch(link.rank(), place.flow, socket.get());
  link.open(number, std::move(socket), std::move(watched), std::move(endpoint));
  if (link.flows()[place.flow].readable()) readable_.push_back(place);
}

/// Handles connections that are being made.
void TcpTransport::meet() {
  if (std::exchange(knocked_, false) || meeting_->calling()) meeting_->progress();
  if (meeting_->broken_by()) throw Error(*meeting_->broken_by());
  for (TcpArrival& arrival : meeting_->take_arrivals()) {
    open(link_to(arrival.rank), arrival.flow, std::move(arrival.socket), std::move(arrival.endpoint));
  }
  for (const Error& failure : meeting_->take_failures()) {
    link_to(static_cast<std::uint32_t>(failure.ranks().front())).give_up(failure);
  }
}

Sender& TcpTransport::sender(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) {
  return link_to(peer).sender({channel, window});
}

Receiver& TcpTransport::receiver(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) {
  return link_to(peer).receiver({channel, window});
}

bool TcpTransport::progress() {
  // Events first: what became writable is written now, so that `false` means that only a new event can change anything.
  asks_directly() ? ask_all() : notice_events();
  if (meeting_ != nullptr) meet();
  look_after_links();
  bool moved = write_all();
  TcpFlow::Aside aside;  // not initialized: read() fills what it uses
  std::size_t kept = 0;
  for (const FlowPlace place : readable_) {  // entries that are kept move down to places already read
    TcpFlow& flow = links_[place.link]->flows()[place.flow];
    if (flow.readable()) moved |= links_[place.link]->read(flow, aside);
    if (flow.readable()) readable_[kept++] = place;
  }
  readable_.resize(kept);
  for (const std::unique_ptr<TcpLink>& link : links_) {
    if (std::optional<Error> fault = link->take_fault()) throw *std::move(fault);
  }
  if (!moved) return pay_late();
  quiet_since_ = {};
  return true;
}

/// Peers get their credits at the latest when this rank has waited for a while. They seldom need them earlier: what is
/// not due hinders only an operation that may have few frames on their way, as a more urgent one is moving.
bool TcpTransport::pay_late() {
  constexpr std::chrono::microseconds kQuiet{30};
  if (std::ranges::none_of(links_, [](const std::unique_ptr<TcpLink>& link) { return link->owes_late(); }))
    return false;
  const TcpLink::Clock::time_point now = TcpLink::Clock::now();
  if (quiet_since_ == TcpLink::Clock::time_point{}) quiet_since_ = now;
  return now - quiet_since_ >= kQuiet && pay_now();
}

bool TcpTransport::pay_now() {
  bool moved = false;
  for (const std::unique_ptr<TcpLink>& link : links_) {
    if (link->owes_late()) moved |= link->write(true);
  }
  return moved;
}

void TcpTransport::sleeping(bool asleep) {
  asleep_ = asleep;
  if (!asleep) return;
  pay_now();
  for (const std::unique_ptr<TcpLink>& link : links_) {
    for (TcpFlow& flow : link->flows()) flow.await_payload();
  }
}

/// Links with several sockets are looked after while something is on its way; one that is idle costs nothing.
void TcpTransport::look_after_links() {
  if (!timer_) return;
  bool watch = false;
  if (std::exchange(due_, false)) {
    timed_ = false;
    const TcpLink::Clock::time_point now = TcpLink::Clock::now();
    for (const std::unique_ptr<TcpLink>& link : links_) watch |= link->flows().size() > 1 && link->look_after(now);
    if (meeting_ != nullptr) meeting_->dial_replacements();
  }
  for (const std::unique_ptr<TcpLink>& link : links_) watch |= link->take_unwatched();
  if (!watch || std::exchange(timed_, true)) return;
  itimerspec when{};
  when.it_value.tv_nsec = std::chrono::nanoseconds(TcpLink::kLook).count();
  if (timerfd_settime(timer_.get(), 0, &when, nullptr) != 0) throw system_error("cannot set a timer", errno);
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

/// Whether this turn reads the sockets without asking the epoll set first. Two ranks that exchange 8 bytes then take 7
/// us instead of 11: what arrives while its receiver is reading is handled by the receiver's kernel.
bool TcpTransport::asks_directly() {
  constexpr std::size_t kFew = 4;
  constexpr unsigned kOften = 16;
  const auto blocked = [](const std::unique_ptr<TcpLink>& link) { return link->blocked(); };
  return sockets_ <= kFew && !asleep_ && ++turns_ % kOften != 0 && std::ranges::none_of(links_, blocked);
}

void TcpTransport::ask_all() {
  for (std::uint32_t link = 0; link < links_.size(); ++link) {
    std::vector<TcpFlow>& flows = links_[link]->flows();
    for (std::uint32_t flow = 0; flow < flows.size(); ++flow) {
      if (flows[flow].suspect()) readable_.push_back({link, flow});
    }
  }
}

void TcpTransport::notice_events() {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const auto place =
        std::bit_cast<FlowPlace>(static_cast<std::uint64_t>(events[static_cast<std::size_t>(i)].data.u64));
    if (place.link == kMeeting.link) {
      (place.flow == kClock.flow ? due_ : knocked_) = true;
      continue;
    }
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
