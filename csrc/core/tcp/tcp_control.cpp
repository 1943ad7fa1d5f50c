#include "core/tcp/tcp_control.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "core/legible.hpp"
#include "core/tcp/meeting/tcp_socket.hpp"
#include "core/tcp/tcp_message.hpp"

namespace syntony {
namespace {

constexpr std::chrono::milliseconds kLongestGoodbye{1000};
constexpr std::size_t kMeeting = ~std::size_t{0};  // its mark in the epoll set, in place of a peer's
constexpr std::uint32_t kEachWithEach = 16;        // ranks of a group: above this, each rank has few neighbours
constexpr std::chrono::microseconds kPrompt{200};  // in which a rank that has just died refuses another connection
constexpr int kReadsAtOnce = 16;  // before another peer, and everything else that the owner of progress has to do

epoll_event interest(std::uint32_t events, std::size_t peer) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = peer;
  return event;
}

/// Of many connections, almost none has data waiting, so idle ones hold no memory.
void drop_front(std::vector<std::byte>& bytes, std::size_t count) {
  if (count == bytes.size()) {
    bytes = std::vector<std::byte>();
  } else {
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
  }
}

/// Sets a flag for its lifetime.
class Raised {
 public:
  explicit Raised(bool& flag) : flag_(flag) { flag_ = true; }
  Raised(const Raised&) = delete;
  Raised& operator=(const Raised&) = delete;
  ~Raised() { flag_ = false; }

 private:
  bool& flag_;
};

}  // namespace

std::vector<std::uint32_t> TcpControl::neighbours(std::uint32_t rank, std::uint32_t ranks,
                                                  std::span<const std::uint32_t> remote) {
  if (ranks <= kEachWithEach) return {remote.begin(), remote.end()};
  std::vector<std::uint32_t> result;
  for (std::uint32_t step = 1; step < ranks; step *= 2) {
    result.push_back((rank + step) % ranks);
    result.push_back((rank + ranks - step) % ranks);
  }
  std::ranges::sort(result);
  result.erase(std::ranges::unique(result).begin(), result.end());
  return result;
}

TcpControl::TcpControl(const GroupIdentity& identity, std::span<TcpPeer> neighbours, TcpMeeting* meeting,
                       std::span<const std::uint32_t> remote)
    : identity_(identity),
      meeting_(meeting),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      descriptor_(epoll_.get()),
      ranks_(remote.begin(), remote.end()),
      said_(identity.ranks),
      states_(identity.ranks, PeerStatus::State::alive),
      remote_(identity.ranks),
      unreached_(identity.ranks),
      fresh_(identity.ranks) {
  if (!epoll_) throw system_error("cannot make an epoll set", errno);
  edges_.reserve(neighbours.size());
  for (TcpPeer& other : neighbours) {
    join(other.rank, std::move(other.control));
    if (remote.empty()) ranks_.push_back(other.rank);
  }
  for (const std::uint32_t rank : ranks_) {
    remote_.insert(rank);
    relays_ |= std::ranges::find(edges_, rank, &Edge::rank) == edges_.end();
  }
  if (meeting_ == nullptr) return;
  epoll_event event = interest(EPOLLIN, kMeeting);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, meeting_->descriptor(), &event) != 0) {
    throw system_error("cannot watch for connections", errno);
  }
}

TcpControl::Edge& TcpControl::join(std::uint32_t rank, TcpStream socket) {
  epoll_event event = interest(EPOLLIN | EPOLLRDHUP, edges_.size());
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    throw system_error("cannot watch a socket", errno);
  }
  Edge& edge = edges_.emplace_back(rank, identity_.ranks);
  edge.socket = std::move(socket);
  if (edge.socket.encrypted()) (void)edge.socket.send({});  // the end that dials begins, whoever speaks first
  return edge;
}

const TcpControl::Held& TcpControl::said_by(std::uint32_t rank) const {
  if (rank >= said_.size() || !remote_.contains(rank)) {
    throw Error(Error::Kind::invalid, "rank " + std::to_string(rank) + " is not reached by TCP");
  }
  return said_[rank];
}

// ---- what this rank says

void TcpControl::announce(const Descriptor& started) {
  const auto alike = [&](const Descriptor& old) { return old.priority == started.priority; };
  if (std::ranges::count_if(started_, alike) == kRemembered) started_.erase(std::ranges::find_if(started_, alike));
  started_.push_back(started);
  if (std::exchange(curious_, false)) flood(Kind::status, identity_.rank, own_status()->bytes);
}

TcpControl::Held TcpControl::own_status() {
  ControlStatus status{.version = ++version_, .completed = completed_, .started = started_};
  if (relays_) {
    status.started.clear();
    for (std::size_t i = 0; i < started_.size(); ++i) {
      const auto later = std::span(started_).subspan(i + 1);
      const auto after = std::ranges::count(later, started_[i].priority, &Descriptor::priority);
      if (static_cast<std::size_t>(after) < kRelayed) status.started.push_back(started_[i]);
    }
  }
  return held(encode(status));
}

/// Ranks mostly do the same, so equal statuses are stored once. Empty for an invalid one.
TcpControl::Held TcpControl::held(std::span<const std::byte> bytes) {
  constexpr std::size_t kLately = 8;
  for (const Held& said : lately_) {
    if (std::ranges::equal(said->bytes, bytes)) return said;
  }
  std::optional<ControlStatus> status = decode_status(bytes);
  if (!status || status->started.size() > kRemembered * kPriorities) return nullptr;
  if (lately_.size() == kLately) lately_.erase(lately_.begin());
  return lately_.emplace_back(
      std::make_shared<const Said>(*std::move(status), std::vector<std::byte>(bytes.begin(), bytes.end())));
}

void TcpControl::inquire() {
  close_ranks();
  const auto open = [](const Edge& edge) { return !edge.socket || edge.asked; };
  if (std::ranges::all_of(edges_, open)) return;
  if (relays_) {
    begin_epoch(0, nullptr);
    return;
  }
  ++epoch_;
  ask(nullptr);
  flood(Kind::status, identity_.rank, own_status()->bytes);  // a peer that asks at the same time is not answered again
}

void TcpControl::ask(const Edge* except) {
  for (Edge& edge : edges_) {
    if (&edge != except) ask(edge);
  }
}

void TcpControl::ask(Edge& edge) {
  if (!edge.socket || (relays_ ? edge.unanswered >= kMostUnanswered : std::exchange(edge.asked, true))) return;
  std::array<std::uint64_t, 1 + kPriorities> inquiry{epoch_};
  for (const Descriptor& started : started_) inquiry.at(1 + index_of(started.priority)) = started.sequence;
  edge.unanswered += sizeof(inquiry);
  send(edge, Kind::inquire, identity_.rank, std::as_bytes(std::span(inquiry)));
}

void TcpControl::abort(const Abort& reason) {
  if (std::exchange(told_, true)) return;
  if (!aborted_) aborted_ = reason;
  close_ranks();
  // Also if it came from a peer: the others must have it before our goodbye, or they would blame us for leaving.
  flood(Kind::abort, identity_.rank, encode(*aborted_));
}

void TcpControl::post(std::uint64_t number, std::string_view message) {
  check_post(message);
  std::vector<std::byte> body(sizeof(number) + message.size());
  std::memcpy(body.data(), &number, sizeof(number));
  std::ranges::copy(std::as_bytes(std::span(message)), body.begin() + sizeof(number));
  flood(Kind::post, identity_.rank, body);
  posts_[identity_.rank][post_slot(number)] = {number, std::string(message)};
  close_ranks();
}

void TcpControl::leave() {
  // First the goodbyes of others, even to peers that accept no more for now: after ours, they hear nothing from us.
  for (Edge& edge : edges_) {
    if (relays_ && edge.socket && !edge.gone.empty()) tell(edge, edge.gone, true);
  }
  // Our completed operations go along, so that peers still working on them do not miss us.
  flood(Kind::leave, identity_.rank, own_status()->bytes);
  const Clock::time_point deadline = Clock::now() + kLongestGoodbye;
  for (Edge& edge : edges_) {
    while (edge.socket && (edge.unsent() || !acknowledged(edge.socket.get())) && Clock::now() < deadline) {
      // Acknowledgements cause no event, hence the millisecond.
      pollfd room{edge.socket.get(), static_cast<short>(edge.blocked ? POLLOUT : 0), 0};
      poll(&room, 1, 1);
      write(edge);
    }
  }
}

void TcpControl::flood(Kind kind, std::uint32_t of, std::span<const std::byte> body, const Edge* except) {
  for (Edge& edge : edges_) {
    if (&edge != except) send(edge, kind, of, body);
  }
}

void TcpControl::send(Edge& edge, Kind kind, std::uint32_t of, std::span<const std::byte> body) {
  if (!edge.socket) return;
  const ControlPrefix prefix{
      .kind = kind, .token = identity_.frame_token(), .length = static_cast<std::uint32_t>(body.size()), .rank = of};
  const auto* head = reinterpret_cast<const std::byte*>(&prefix);
  edge.outbox.insert(edge.outbox.end(), head, head + sizeof(prefix));
  edge.outbox.insert(edge.outbox.end(), body.begin(), body.end());
  if (!reading_) write(edge);
}

void TcpControl::write(Edge& edge) {
  bool blocked = false;
  std::size_t written = 0;
  while (edge.socket && (written < edge.outbox.size() || edge.socket.pending()) && !blocked) {
    iovec rest{edge.outbox.data() + written, edge.outbox.size() - written};
    const ssize_t n = edge.socket.send({&rest, 1});
    if (n >= 0) {
      written += static_cast<std::size_t>(n);
      blocked = edge.socket.pending();
    } else if (errno == EINPROGRESS) {
      break;  // listen() tries again when the other end has answered
    } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM) {
      blocked = true;  // from now on, so that nobody repeats it
    } else if (errno != EINTR) {
      // Broken for writing; what the peer sent before, perhaps a goodbye, has yet to be read.
      written = edge.outbox.size();
      break;
    }
  }
  drop_front(edge.outbox, written);
  if (!edge.socket || std::exchange(edge.blocked, blocked) == blocked) return;
  epoll_event event =
      interest(EPOLLIN | EPOLLRDHUP | (blocked ? EPOLLOUT : 0U), static_cast<std::size_t>(&edge - edges_.data()));
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, edge.socket.get(), &event);
}

// ---- what the peers say

PeerStatus TcpControl::status(std::uint32_t rank) const {
  const Held& said = said_by(rank);
  PeerStatus status{.state = states_[rank], .started = {}, .completed = {}, .known = said != nullptr};
  if (!said) return status;
  status.completed = said->status.completed;
  for (const Descriptor& started : said->status.started) status.started[index_of(started.priority)] = started;
  return status;
}

std::string TcpControl::end_of(std::uint32_t peer) const {
  const auto end = ends_.find(peer);
  return end == ends_.end() ? std::string() : end->second;
}

std::optional<Descriptor> TcpControl::announced(std::uint32_t peer, Priority priority, std::uint64_t sequence) const {
  const Held& said = said_by(peer);
  if (!said) return std::nullopt;
  const std::vector<Descriptor>& started = said->status.started;
  const auto found = std::ranges::find_if(
      started, [&](const Descriptor& one) { return one.priority == priority && one.sequence == sequence; });
  return found == started.end() ? std::nullopt : std::optional(*found);
}

std::optional<Descriptor> TcpControl::announced(std::uint32_t peer, std::uint64_t ordinal) const {
  const Held& said = said_by(peer);
  if (!said) return std::nullopt;
  const std::vector<Descriptor>& started = said->status.started;
  const auto found = std::ranges::find(started, ordinal, &Descriptor::ordinal);
  return found == started.end() ? std::nullopt : std::optional(*found);
}

std::optional<std::string> TcpControl::posted(std::uint32_t peer, std::uint64_t number) const {
  const auto posts = posts_.find(peer);
  if (posts == posts_.end()) return std::nullopt;
  const auto& [last, text] = posts->second[post_slot(number)];
  return last == number ? std::optional(text) : std::nullopt;
}

void TcpControl::progress() {
  if (called_ || !between_.empty()) meeting_->progress();
  listen();
  if (meeting_ == nullptr) return;
  ask_for_calls();
  receive();
}

// ---- connections that only the other side can make

void TcpControl::ask_for_calls() {
  for (const TcpRequest& request : meeting_->take_requests()) {
    if (states_[request.rank] != PeerStatus::State::alive) {
      meeting_->refuse_request(request);
      continue;
    }
    const CallRequest call{.to = request.rank, .control = request.control ? 1U : 0U};
    flood(Kind::call, identity_.rank, std::as_bytes(std::span(&call, 1)));
  }
}

/// Passed on once: each rank asks another once for the same.
bool TcpControl::take_call(Edge& edge, std::uint32_t of, std::span<const std::byte> body) {
  CallRequest call;
  if (body.size() != sizeof(call)) return false;
  std::memcpy(&call, body.data(), sizeof(call));
  if (call.to >= identity_.ranks || call.control > 1) return false;
  if (of == identity_.rank || !calls_.emplace(of, call).second) return true;
  if (call.to == identity_.rank) {
    if (meeting_ != nullptr && states_[of] == PeerStatus::State::alive) meeting_->call_back(of, call.control != 0);
  } else if (relays_) {
    flood(Kind::call, of, body, &edge);
  }
  return true;
}

void TcpControl::listen() {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  if (count <= 0) return;
  const Raised reading(reading_);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t place = events[static_cast<std::size_t>(i)].data.u64;
    place == kMeeting ? meeting_->progress() : read(edges_[place]);
  }
  for (Edge& edge : edges_) {
    if (edge.unsent()) write(edge);
  }
  tell();
}

void TcpControl::read(Edge& edge) {
  std::array<std::byte, 4096> bytes;
  // The set does not tell of what a session has read ahead.
  for (int turn = 0; edge.socket && (turn < kReadsAtOnce || edge.socket.encrypted()); ++turn) {
    iovec room{bytes.data(), bytes.size()};
    const ssize_t n = edge.socket.receive({&room, 1});
    if (n > 0) {
      edge.inbox.insert(edge.inbox.end(), bytes.begin(), bytes.begin() + n);
      if (!take_messages(edge)) lose(edge, "was disconnected: it sent a control message that cannot be believed");
    } else if (n == 0) {
      cut(edge, "closed its connection without a goodbye");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      const bool by_peer = errno == ECONNRESET || errno == EPIPE;
      const std::string how = "lost its connection (" + sentence_of(errno) + ")";
      by_peer ? cut(edge, how) : lose(edge, how);
    }
  }
}

bool TcpControl::take_messages(Edge& edge) {
  std::span<const std::byte> rest = edge.inbox;
  while (rest.size() >= sizeof(ControlPrefix)) {
    ControlPrefix prefix;
    std::memcpy(&prefix, rest.data(), sizeof(prefix));
    const bool heard_itself = prefix.rank == edge.rank;
    if (prefix.magic != ControlPrefix::kMagic || prefix.token != identity_.frame_token() ||
        prefix.length > kLargestBody || prefix.rank >= identity_.ranks || !(heard_itself || relays_)) {
      return false;
    }
    if (rest.size() - sizeof(prefix) < prefix.length) break;
    if (!take(edge, prefix, rest.subspan(sizeof(prefix), prefix.length))) return false;
    if (!edge.socket) return true;  // it left: nothing after a goodbye counts
    rest = rest.subspan(sizeof(prefix) + prefix.length);
  }
  drop_front(edge.inbox, edge.inbox.size() - rest.size());
  return true;
}

bool TcpControl::take(Edge& edge, const ControlPrefix& prefix, std::span<const std::byte> body) {
  edge.unanswered = 0;
  if (prefix.kind != Kind::leave && prefix.kind != Kind::statuses) close_ranks();
  switch (prefix.kind) {
    case Kind::inquire:
      return take_inquiry(edge, body);
    case Kind::status:
      return prefix.rank == edge.rank && take_status(edge, body, false);
    case Kind::statuses:
      return relays_ && take_statuses(edge, body);
    case Kind::leave:
      return prefix.rank == edge.rank && take_status(edge, body, true);
    case Kind::post:
      return take_post(edge, prefix.rank, body);
    case Kind::abort: {
      std::optional<Abort> abort = decode_abort(body);
      if (!abort) return false;
      if (aborted_) return true;
      aborted_ = std::move(abort);
      ++news_;
      if (relays_ && !std::exchange(told_, true)) flood(Kind::abort, prefix.rank, body, &edge);
      return true;
    }
    case Kind::call:
      return take_call(edge, prefix.rank, body);
    case Kind::ask_time:
      return prefix.rank == edge.rank && take_time_question(edge, body);
    case Kind::time:
      return prefix.rank == edge.rank && take_time(edge, body);
    case Kind::dead: {
      if (!relays_) return false;
      if (prefix.rank == identity_.rank || states_[prefix.rank] != PeerStatus::State::alive) return true;
      end(prefix.rank, PeerStatus::State::dead, legible({reinterpret_cast<const char*>(body.data()), body.size()}));
      flood(Kind::dead, prefix.rank, body, &edge);
      return true;
    }
  }
  return false;
}

/// False, and the connection ends, if it has not read many answers.
bool TcpControl::has_room(Edge& edge) {
  if (edge.outbox.size() <= kLargestBody) return true;
  lose(edge, "was disconnected: it asks again and again and reads no answer");
  return false;
}

bool TcpControl::take_inquiry(Edge& edge, std::span<const std::byte> body) {
  std::array<std::uint64_t, 1 + kPriorities> inquiry{};
  if (body.size() != sizeof(inquiry)) return false;
  std::memcpy(inquiry.data(), body.data(), sizeof(inquiry));
  if (relays_) {
    begin_epoch(inquiry.front(), &edge);
    return true;
  }
  if (!has_room(edge)) return true;
  std::array<std::uint64_t, kPriorities> ours{};
  for (const Descriptor& started : started_) ours[index_of(started.priority)] = started.sequence;
  for (std::size_t i = 0; i < kPriorities; ++i) curious_ |= inquiry.at(1 + i) > ours[i];
  send(edge, Kind::status, identity_.rank, own_status()->bytes);
  return true;
}

bool TcpControl::take_status(Edge& edge, std::span<const std::byte> body, bool last) {
  const Held said = held(body);
  if (!said) return false;
  edge.asked = false;
  if (states_[edge.rank] == PeerStatus::State::alive) {
    hear(edge.rank, said, &edge);
    if (last) part(edge.rank, &edge);
  }
  if (last) close(edge);
  return true;
}

void TcpControl::hear(std::uint32_t rank, const Held& said, Edge* from) {
  Held& last = said_[rank];
  const std::uint64_t version = last ? last->status.version : 0;
  if (said->status.version < version) return;
  if (!last || said->status.version > version) {
    last = said;
    ++news_;
    for (Edge& edge : edges_) edge.news.insert(rank);
    fresh_.insert(rank);
  }
  if (from != nullptr) from->news.erase(rank);
}

bool TcpControl::take_post(Edge& edge, std::uint32_t of, std::span<const std::byte> body) {
  std::uint64_t number = 0;
  if (body.size() < sizeof(number) || body.size() > sizeof(number) + kLongestPost) return false;
  std::memcpy(&number, body.data(), sizeof(number));
  if (of == identity_.rank) return true;
  auto& [last, text] = posts_[of][post_slot(number)];
  if (relays_ && number <= last) return true;
  const auto told = body.subspan(sizeof(number));
  last = number;
  text.assign(reinterpret_cast<const char*>(told.data()), told.size());
  if (relays_) flood(Kind::post, of, body, &edge);
  return true;
}

void TcpControl::cut(Edge& edge, const std::string& how) {
  if (meeting_ != nullptr && states_[edge.rank] == PeerStatus::State::alive && !meeting_->makes_control(edge.rank)) {
    meeting_->call_control_again(edge.rank);
    const Clock::time_point end = Clock::now() + kPrompt;
    while (meeting_->makes_control(edge.rank) && Clock::now() < end) {
      std::this_thread::yield();
      meeting_->progress();
    }
  }
  lose(edge, how);
}

void TcpControl::lose(Edge& edge, const std::string& how) {
  close(edge);
  if (states_[edge.rank] != PeerStatus::State::alive) return;
  if (meeting_ != nullptr && meeting_->makes_control(edge.rank)) {
    between_[edge.rank] = how;
  } else {
    die(edge.rank, how);
  }
}

void TcpControl::die(std::uint32_t rank, const std::string& how) {
  end(rank, PeerStatus::State::dead, how);
  if (!relays_) return;
  flood(Kind::dead, rank, std::as_bytes(std::span(how)));
  close_ranks();
}

void TcpControl::close(Edge& edge) {
  edge.socket.close();
  edge.inbox.clear();
  edge.outbox.clear();
  frayed_ = relays_ && meeting_ != nullptr;
  if (time_.from == edge.rank) ask_time();
}

void TcpControl::end(std::uint32_t rank, PeerStatus::State state, std::string how) {
  states_[rank] = state;
  if (ends_.insert_or_assign(rank, std::move(how)).second && remote_.contains(rank)) ++ended_;
  ++news_;
}

}  // namespace syntony
