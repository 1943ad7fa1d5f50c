#include "emulation/aggregator/aggregator.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHeartbeat{50};      // how often deadlines and the caller are asked
constexpr std::size_t kMostWaiting = 4096;  // connections
constexpr int kReadsAtOnce = 16;            // before another worker is read from
constexpr std::size_t kFramesAtOnce = 8;

void check(const AggregatorOptions& options) {
  const auto require = [](bool holds, const char* what, std::size_t value, const char* right) {
    if (!holds) {
      throw Error(Error::Kind::invalid,
                  std::string(what) + " of the aggregator is " + std::to_string(value) + "; it must be " + right);
    }
  };
  require(options.slots >= 1 && options.slots <= 65536, "slots", options.slots, "1 to 65536");
  require(options.slot_bytes >= 64 && options.slot_bytes <= (std::size_t{1} << 24U) && options.slot_bytes % 8 == 0,
          "slot bytes", options.slot_bytes, "a multiple of 8, 64 to 16777216");
  require(options.tenants >= 1 && options.tenants <= options.slots, "tenants", options.tenants,
          "at least 1 and at most the number of slots");
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
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw system_error("cannot make an epoll", errno);
  if (options_.shared) common_ = std::make_shared<SlotPool>(options_.slots, capacity_);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;  // the listener
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) != 0) {
    throw system_error("cannot watch the listening socket", errno);
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
      if (event.data.ptr == nullptr) {
        accept_all();
        continue;
      }
      auto& worker = *static_cast<Worker*>(event.data.ptr);
      if (worker.starved && (event.events & (EPOLLHUP | EPOLLERR)) != 0U) lost(worker);
      if (!worker.closed && (event.events & EPOLLOUT) != 0U) write_to(worker);
      if (!worker.closed && (event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0U) read_from(worker);
    }
    feed_starved();
    reap();
  }
}

// ---- connections ----------------------------------------------------------------------------------------------------

void Aggregator::accept_all() {
  while (true) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) return;
    if (workers_.size() >= kMostWaiting) continue;  // closed at once
    tune_data_socket(socket.get(), {});
    AggregationChallenge challenge;
    challenge.nonce = random_token();
    if (send(socket.get(), &challenge, sizeof(challenge), MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(challenge)))
      continue;
    Worker& worker = workers_.emplace_back();
    worker.socket = std::move(socket);
    worker.nonce = challenge.nonce;
    worker.deadline = Clock::now() + kPatience;
    watch(worker);
  }
}

void Aggregator::watch(Worker& worker) {
  std::uint32_t wanted = worker.starved ? 0U : static_cast<std::uint32_t>(EPOLLIN);
  if (!worker.out.empty()) wanted |= EPOLLOUT;
  if (worker.watched == wanted) return;
  epoll_event event{};
  event.events = wanted;
  event.data.ptr = &worker;
  const int change = worker.watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (epoll_ctl(epoll_.get(), change, worker.socket.get(), &event) != 0) worker.closed = true;
  worker.watched = wanted;
}

void Aggregator::reap() {
  for (auto at = workers_.begin(); at != workers_.end();) {
    if (at->closed) {
      if (at->job != nullptr) lost(*at);
      at = workers_.erase(at);
    } else {
      ++at;
    }
  }
}

// ---- coming in ------------------------------------------------------------------------------------------------------

bool Aggregator::receive(Worker& worker, std::byte* to, std::size_t from, std::size_t until) {
  const std::size_t offset = worker.have - from;
  const ssize_t got = recv(worker.socket.get(), to + offset, until - worker.have, 0);
  if (got > 0) {
    worker.have += static_cast<std::size_t>(got);
    return true;
  }
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  lost(worker);
  return false;
}

/// What a worker says after its end is not heard; closing before it hangs up would cost it the last words to it.
void Aggregator::drain(Worker& worker) {
  std::array<std::byte, 65536> unheard{};
  const ssize_t got = recv(worker.socket.get(), unheard.data(), unheard.size(), 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) worker.closed = true;
}

void Aggregator::read_from(Worker& worker) {
  if (worker.closing) return drain(worker);
  for (int turn = 0; turn < kReadsAtOnce && !worker.closed && !worker.closing && !worker.starved; ++turn) {
    const std::size_t head = worker.job == nullptr ? sizeof(AggregationHello) : sizeof(AggregationFrame);
    if (worker.have < head) {
      if (!receive(worker, worker.head.data(), 0, head)) return;
      if (worker.have < head) continue;
      if (worker.job == nullptr) {
        worker.have = 0;
        greet(worker, read_as<AggregationHello>(worker.head.data()));
      } else {
        worker.frame = read_as<AggregationFrame>(worker.head.data());
        if (!take_frame(worker)) continue;
      }
      continue;
    }
    const bool begins = worker.frame.kind == AggregationFrame::Kind::begin;
    std::byte* const body = begins ? reinterpret_cast<std::byte*>(&worker.begin) : worker.slot->part(worker.rank);
    const std::size_t whole = head + worker.frame.length;
    if (!receive(worker, body, head, whole)) return;
    if (worker.have < whole) continue;
    worker.have = 0;
    if (begins) {
      begin_operation(worker);
    } else {
      finish_chunk(worker);
    }
  }
}

/// Judges a frame by its head; false when no body of it is to be read.
bool Aggregator::take_frame(Worker& worker) {
  using Kind = AggregationFrame::Kind;
  const AggregationFrame& frame = worker.frame;
  if (frame.magic != kAggregationMagic || frame.token != worker.job->token[0] || frame.zero != 0) {
    nonsense(worker, "a frame without the job's token");
    return false;
  }
  switch (frame.kind) {
    case Kind::begin:
      if (frame.length == sizeof(AggregationBegin) && frame.operation == worker.operation + 1) return true;
      nonsense(worker, "a malformed begin");
      return false;
    case Kind::leave:
      leave(worker);
      return false;
    case Kind::exponents:
    case Kind::chunk:
      return place_chunk(worker);
    default:
      nonsense(worker, "a frame of unknown kind");
      return false;
  }
}

// ---- going out ------------------------------------------------------------------------------------------------------

void Aggregator::post(Worker& worker, Outgoing message) {
  if (worker.closed) return;
  message.frame.token = worker.token;
  if (!message.slot) message.frame.length = static_cast<std::uint32_t>(message.body.size());
  worker.out.push_back(std::move(message));
  if (worker.out.size() == 1) write_to(worker);
}

void Aggregator::write_to(Worker& worker) {
  while (!worker.out.empty()) {
    std::array<iovec, 2 * kFramesAtOnce> pieces{};
    std::size_t count = 0;
    std::size_t skip = worker.sent;
    const auto piece = [&](const void* bytes, std::size_t length) {
      const std::size_t gone = std::min(skip, length);
      skip -= gone;
      if (gone == length) return;
      pieces[count++] = {const_cast<char*>(static_cast<const char*>(bytes)) + gone, length - gone};
    };
    for (std::size_t i = 0; i < std::min(kFramesAtOnce, worker.out.size()); ++i) {
      piece(&worker.out[i].frame, sizeof(AggregationFrame));
      piece(worker.out[i].bytes(), worker.out[i].frame.length);
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t gone = sendmsg(worker.socket.get(), &message, MSG_NOSIGNAL);
    if (gone < 0) {
      if (errno == EINTR) continue;
      // What a broken connection means is told by reading from it.
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        worker.out.clear();
        worker.sent = 0;
      }
      break;
    }
    worker.sent += static_cast<std::size_t>(gone);
    while (!worker.out.empty()) {
      const std::size_t whole = sizeof(AggregationFrame) + worker.out.front().frame.length;
      if (worker.sent < whole) break;
      worker.sent -= whole;
      worker.out.pop_front();
    }
  }
  if (worker.out.empty() && worker.closing) shutdown(worker.socket.get(), SHUT_WR);  // it reads to the end and hangs up
  watch(worker);
}

}  // namespace syntony
