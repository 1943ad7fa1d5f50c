#include "ranks.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace tests {
namespace {

std::string place(const std::source_location& where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line()) + ": ";
}

}  // namespace

void require(bool condition, std::string_view what, std::source_location where) {
  if (!condition) throw std::runtime_error(place(where) + std::string(what));
}

syntony::Error error_of(const std::function<void()>& action, std::source_location where) {
  try {
    action();
  } catch (const syntony::Error& error) {
    return error;
  }
  throw std::runtime_error(place(where) + "no Error was thrown");
}

void require_in(std::string_view part, std::string_view text, std::source_location where) {
  require(text.find(part) != std::string_view::npos, "no '" + std::string(part) + "' in '" + std::string(text) + "'",
          where);
}

syntony::Descriptor operation(std::uint64_t sequence, std::uint32_t root) {
  return {.sequence = sequence,
          .fingerprint = sequence * 31,
          .elements = 1024,
          .program = 5,
          .root = root,
          .collective = syntony::Collective::broadcast,
          .dtype = syntony::DType::bfloat16,
          .op = syntony::ReduceOp::max};
}

void eventually(const std::function<bool()>& attempt, std::string_view what, std::source_location where) {
  const Clock::time_point deadline = Clock::now() + kPatience;
  while (!attempt()) {
    require(Clock::now() < deadline, "waited in vain: " + std::string(what), where);
    std::this_thread::yield();
  }
}

void Gathering::settle(const std::function<void()>& work) {
  auto arrived = barrier.arrive();
  std::atomic<bool> all = false;
  const std::jthread waiting([&] {
    barrier.wait(std::move(arrived));
    all = true;
  });
  while (!all) {
    work();
    std::this_thread::yield();
  }
}

syntony::TcpListener Rank::publish(const syntony::TcpOptions& options) {
  syntony::TcpListener listener(options);
  gathering.published[rank] = listener.published();
  meet();
  return listener;
}

std::vector<syntony::TcpPeer> Rank::connect(const syntony::TcpOptions& options, milliseconds timeout) {
  return connect(publish(options), options, timeout);
}

std::vector<syntony::TcpPeer> Rank::connect(syntony::TcpListener listener, const syntony::TcpOptions& options,
                                            milliseconds timeout) {
  return connect(std::move(listener), others(), options, timeout);
}

std::vector<syntony::TcpPeer> Rank::connect(syntony::TcpListener listener, std::span<const std::uint32_t> with,
                                            const syntony::TcpOptions& options, milliseconds timeout) {
  syntony::TcpMeeting meeting(std::move(listener), options, identity(), gathering.published, with, timeout);
  std::vector<syntony::TcpPeer> peers = meeting.connect_control(with);
  connect_data(meeting, rank, peers);
  return peers;
}

std::unique_ptr<syntony::TcpMeeting> Rank::meet_for_control(const syntony::TcpOptions& options,
                                                            std::vector<syntony::TcpPeer>& peers) {
  auto meeting = std::make_unique<syntony::TcpMeeting>(publish(options), options, identity(), gathering.published,
                                                       others(), kPatience);
  peers = meeting->connect_control(others());
  return meeting;
}

std::vector<std::uint32_t> Rank::others() const {
  std::vector<std::uint32_t> result;
  for (std::uint32_t other = 0; other < gathering.ranks; ++other) {
    if (other != rank) result.push_back(other);
  }
  return result;
}

void connect_data(syntony::TcpMeeting& meeting, std::uint32_t rank, std::span<syntony::TcpPeer> peers) {
  std::size_t left = 0;
  for (syntony::TcpPeer& peer : peers) {
    peer.flows.resize(meeting.flows_with(peer.rank));
    left += peer.flows.size();
    if (peer.rank < rank) meeting.call(peer.rank);
  }
  eventually(
      [&] {
        meeting.progress();
        if (meeting.broken_by()) throw syntony::Error(*meeting.broken_by());
        for (const syntony::Error& failure : meeting.take_failures()) throw syntony::Error(failure);
        for (syntony::TcpArrival& arrival : meeting.take_arrivals()) {
          const auto peer = std::ranges::find(peers, arrival.rank, &syntony::TcpPeer::rank);
          peer->flows[arrival.flow] = std::move(arrival.socket);
          --left;
        }
        return left == 0;
      },
      "data sockets with all");
}

void run_ranks(std::uint32_t ranks, const std::function<void(Rank&)>& body) {
  Gathering gathering(ranks);
  std::vector<std::jthread> threads;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&gathering, &body, r] {
      Rank rank(gathering, r);
      try {
        body(rank);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %u: %s\n", r, error.what());
        std::_Exit(1);
      }
    });
  }
}

void write_bytes(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
    if (n < 0 && errno == EAGAIN) {
      pollfd room{socket, POLLOUT, 0};
      poll(&room, 1, 1000);
    } else if (n < 0 && errno != EINTR) {
      return;  // the other side may have hung up
    }
  }
}

syntony::UniqueFd knock(const syntony::TcpAddress& address) {
  syntony::UniqueFd result(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  require(connect(result.get(), address.get(), address.length()) == 0, "cannot connect to " + address.text());
  return result;
}

void reset_when_closed(int socket) {
  const linger hard{1, 0};
  setsockopt(socket, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
}

bool readable(int descriptor, milliseconds timeout) {
  pollfd state{descriptor, POLLIN, 0};
  return poll(&state, 1, static_cast<int>(timeout.count())) == 1;
}

}  // namespace tests
