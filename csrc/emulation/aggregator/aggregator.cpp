#include "emulation/aggregator/aggregator.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHeartbeat{50};      // interval of checks of deadlines and of the caller
constexpr std::size_t kMostWaiting = 4096;  // connections
constexpr int kBatches = 16;                // of packets, before connections are served

void check(const AggregatorOptions& options) {
  const auto require = [](bool holds, const char* what, std::size_t value, const char* right) {
    if (!holds) {
      throw Error(Error::Kind::invalid,
                  std::string(what) + " of the aggregator is " + std::to_string(value) + "; it must be " + right);
    }
  };
  require(options.slots >= 2 && options.slots <= 65536, "slots", options.slots, "2 to 65536");
  require(options.slot_bytes >= 64 && options.slot_bytes <= 61000 && options.slot_bytes % 8 == 0, "slot bytes",
          options.slot_bytes, "a multiple of 8, 64 to 61000");
  require(options.tenants >= 1 && 2 * options.tenants <= options.slots, "tenants", options.tenants,
          "at least 1, with two slots each");
  if (options.shared && options.on_arrival) {
    throw Error(Error::Kind::invalid,
                "an aggregator that shares its slots keeps parts, to pass them on, and cannot add on arrival");
  }
}

UniqueFd listen_on(const std::string& text, const std::string& secret) {
  const std::optional<TcpAddress> address = TcpAddress::parse(text);
  if (!address) throw Error(Error::Kind::invalid, "'" + text + "' is not an address like 10.0.0.4:4242");
  UniqueFd socket = open_tcp_socket(address->family());
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (secret.empty() && !address->loopback()) {
    throw Error(Error::Kind::invalid, "an aggregator at " + text +
                                          " needs a secret, as others can reach that address, too: set SYNTONY_SECRET "
                                          "to one random value here and at all workers");
  }
  if (bind(socket.get(), address->get(), address->length()) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
    throw system_error("cannot listen on " + text, errno);
  }
  return socket;
}

Datagrams packets_beside(int listener, std::size_t longest) {
  const TcpAddress address = TcpAddress::local(listener);
  return {address, address.port(), longest};
}

template <class T>
T read_as(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

}  // namespace

Aggregator::Aggregator(AggregatorOptions options)
    : options_((check(options), std::move(options))),
      capacity_(slot_capacity(options_.slot_bytes)),
      listener_(listen_on(options_.listen, options_.secret)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      datagrams_(packets_beside(listener_.get(), capacity_)),
      shared_(options_.shared ? options_.slots : 0) {
  if (!epoll_) throw system_error("cannot make an epoll", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  for (void* const place : {static_cast<void*>(&listener_), static_cast<void*>(&datagrams_)}) {
    event.data.ptr = place;
    const int socket = place == &listener_ ? listener_.get() : datagrams_.get();
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) != 0) {
      throw system_error("cannot watch the aggregator's sockets", errno);
    }
  }
}

Aggregator::~Aggregator() = default;

void Aggregator::run(const std::function<bool()>& keep_going) {
  Clock::time_point heartbeat = Clock::now();
  while (true) {
    const Clock::time_point now = Clock::now();
    if (now >= heartbeat) {
      if (!keep_going()) return;
      check_deadlines(now);
      heartbeat = now + kHeartbeat;
    }
    std::array<epoll_event, 64> events{};
    const int ready =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), static_cast<int>(kHeartbeat.count()));
    if (ready < 0 && errno != EINTR) throw system_error("cannot wait for workers", errno);
    for (int i = 0; i < ready; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.ptr == &listener_) {
        accept_all();
      } else if (event.data.ptr == &datagrams_) {
        const auto take = [this](const AggregationPacket& head, const std::byte* payload) {
          take_packet(head, payload);
        };
        for (int batch = 0; batch < kBatches && datagrams_.receive(take) == Datagrams::kAtOnce;) ++batch;
      } else {
        auto& peer = *static_cast<Peer*>(event.data.ptr);
        if (!peer.closed && (event.events & EPOLLOUT) != 0U) write_to(peer);
        if (!peer.closed && (event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0U) read_from(peer);
      }
    }
    reap();
  }
}

void Aggregator::check_deadlines(Clock::time_point now) {
  for (Peer& peer : peers_) {
    if (now >= peer.deadline) peer.closed = true;  // a stranger, or one that does not read its last messages
  }
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    Job& job = *at++;
    if (now >= job.deadline) {
      std::string missing;
      std::uint32_t first = kNobody;
      const bool direct = std::ranges::all_of(job.children, [](const Peer* child) { return child->members == 1; });
      for (std::uint32_t rank = 0; direct && job.under == job.ranks && rank < job.ranks; ++rank) {
        if (job.child_of[rank] >= 0) continue;
        missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
        first = std::min(first, rank);
      }
      fail(job, Error::Kind::timeout, first,
           missing.empty() ? std::to_string(job.under - job.joined) + " of " + std::to_string(job.under) +
                                 " ranks did not come to the aggregator in time"
                           : "rank " + missing + " did not come to the aggregator in time");
    } else if (job.complete && job.parent == nullptr && !job.above.empty()) {
      dial(job);  // the one above was not listening yet
    }
  }
}

// ---- connections ----------------------------------------------------------------------------------------------------

void Aggregator::accept_all() {
  while (true) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) return;
    if (peers_.size() >= kMostWaiting) continue;  // closed at once
    tune_data_socket(socket.get(), {});
    AggregationChallenge challenge;
    challenge.nonce = random_token();
    if (send(socket.get(), &challenge, sizeof(challenge), MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(challenge)))
      continue;
    Peer& peer = peers_.emplace_back();
    peer.socket = std::move(socket);
    peer.nonce = challenge.nonce;
    peer.deadline = Clock::now() + kPatience;
    watch(peer);
  }
}

void Aggregator::watch(Peer& peer) {
  std::uint32_t wanted = EPOLLIN;
  if (!peer.out.empty() || !peer.connected) wanted |= EPOLLOUT;
  if (peer.watched == wanted) return;
  epoll_event event{};
  event.events = wanted;
  event.data.ptr = &peer;
  const int change = peer.watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (epoll_ctl(epoll_.get(), change, peer.socket.get(), &event) != 0) peer.closed = true;
  peer.watched = wanted;
}

void Aggregator::reap() {
  for (auto at = peers_.begin(); at != peers_.end();) {
    if (at->closed) {
      if (at->job != nullptr) lost(*at);
      at = peers_.erase(at);
    } else {
      ++at;
    }
  }
}

// ---- coming in ------------------------------------------------------------------------------------------------------

/// What a peer says after its end is ignored; closing before it hangs up could lose the last messages to it.
void Aggregator::drain(Peer& peer) {
  std::array<std::byte, 65536> unheard{};
  const ssize_t got = recv(peer.socket.get(), unheard.data(), unheard.size(), 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) peer.closed = true;
}

void Aggregator::read_from(Peer& peer) {
  if (peer.closing) return drain(peer);
  std::array<std::byte, 8192> bytes{};
  const ssize_t got = recv(peer.socket.get(), bytes.data(), bytes.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got <= 0) {
    peer.closed = true;
    return;
  }
  peer.in.insert(peer.in.end(), bytes.begin(), bytes.begin() + got);
  while (!peer.closed && !peer.closing && take_message(peer)) {
  }
}

/// Removes the first message from the received bytes; false if it is not complete yet.
bool Aggregator::take_message(Peer& peer) {
  const std::vector<std::byte>& in = peer.in;
  std::size_t whole = 0;
  if (peer.above && !peer.challenged) {
    whole = sizeof(AggregationChallenge);
    if (in.size() < whole) return false;
    const auto challenge = read_as<AggregationChallenge>(in.data());
    if (challenge.magic != kAggregationMagic || challenge.version != kAggregationVersion) {
      peer.closed = true;
      return false;
    }
    peer.nonce = challenge.nonce;
    peer.challenged = true;
    introduce(peer);
  } else if (peer.job == nullptr) {
    if (in.size() < sizeof(AggregationHello)) return false;
    const auto hello = read_as<AggregationHello>(in.data());
    if (hello.magic != kAggregationMagic || hello.zero != 0 || hello.above_length > kLongestWay) {
      peer.closed = true;  // a stranger gets no answer
      return false;
    }
    whole = sizeof(hello) + hello.above_length;
    if (hello.version == kAggregationVersion && in.size() < whole) return false;
    whole = std::min(whole, in.size());
    greet(peer, hello, std::string(reinterpret_cast<const char*>(in.data()) + sizeof(hello), whole - sizeof(hello)));
  } else {
    if (in.size() < sizeof(AggregationFrame)) return false;
    const auto frame = read_as<AggregationFrame>(in.data());
    const bool ours = frame.magic == kAggregationMagic && frame.token == peer.job->token[0] && frame.zero == 0 &&
                      frame.length <= kLongestSentence + sizeof(AggregationFailure);
    whole = sizeof(frame) + (ours ? frame.length : 0);
    if (in.size() < whole) return false;
    const std::vector<std::byte> body(in.begin() + sizeof(frame), in.begin() + static_cast<std::ptrdiff_t>(whole));
    if (ours) {
      take_frame(peer, frame, body.data());
    } else {
      nonsense(peer);
    }
  }
  peer.in.erase(peer.in.begin(), peer.in.begin() + static_cast<std::ptrdiff_t>(whole));
  return true;
}

// ---- going out ------------------------------------------------------------------------------------------------------

void Aggregator::post(Peer& peer, AggregationFrame::Kind kind, const void* body, std::size_t length) {
  if (peer.closed) return;
  AggregationFrame frame;
  frame.kind = kind;
  frame.token = peer.token;
  frame.length = static_cast<std::uint32_t>(length);
  const auto add = [&peer](const void* bytes, std::size_t count) {
    const auto* const from = static_cast<const std::byte*>(bytes);
    peer.out.insert(peer.out.end(), from, from + count);
  };
  add(&frame, sizeof(frame));
  if (length > 0) add(body, length);
  if (peer.connected) write_to(peer);
}

void Aggregator::write_to(Peer& peer) {
  if (!peer.connected) {
    int error = 0;
    socklen_t length = sizeof(error);
    if (getsockopt(peer.socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error != 0) {  // nobody listens there yet: the job dials again
      if (peer.job != nullptr) peer.job->parent = nullptr;
      peer.job = nullptr;
      peer.closed = true;
      return;
    }
    peer.connected = true;
  }
  while (!peer.out.empty()) {
    const ssize_t gone = send(peer.socket.get(), peer.out.data(), peer.out.size(), MSG_NOSIGNAL);
    if (gone < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) peer.out.clear();  // reading from it will report the reason
      break;
    }
    peer.out.erase(peer.out.begin(), peer.out.begin() + gone);
  }
  if (peer.out.empty() && peer.closing) shutdown(peer.socket.get(), SHUT_WR);  // it reads to the end and hangs up
  watch(peer);
}

}  // namespace syntony
