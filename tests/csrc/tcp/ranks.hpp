// Ranks as threads of one process, and helpers of the tests.
#pragma once

#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/tcp/meeting/tcp_meeting.hpp"
#include "core/tcp/tcp_control.hpp"
#include "core/tcp/tcp_transport.hpp"

namespace tests {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// For events that must happen: on a busy machine, a second of this can become a minute.
inline constexpr seconds kPatience{60};
inline const syntony::TcpOptions kTwoFlows{.flows = 2};  // so that flows can get in each other's way

/// Throws with file, line and `what` unless `condition` holds.
void require(bool condition, std::string_view what, std::source_location where = std::source_location::current());

/// Returns the Error that `action` throws; fails if it throws none.
syntony::Error error_of(const std::function<void()>& action,
                        std::source_location where = std::source_location::current());

/// Fails unless `text` contains `part`.
void require_in(std::string_view part, std::string_view text,
                std::source_location where = std::source_location::current());

/// Repeats `attempt` until it is true; fails after kPatience.
void eventually(const std::function<bool()>& attempt, std::string_view what,
                std::source_location where = std::source_location::current());

/// What a rank announces: a broadcast, which only its sequence number and root tell from others.
syntony::Descriptor operation(std::uint64_t sequence, std::uint32_t root);

/// What the ranks of one test share.
class Gathering {
 public:
  explicit Gathering(std::uint32_t count) : ranks(count), published(count), barrier(count) {}

  std::uint32_t ranks;
  std::array<std::uint64_t, 2> token{0x1234567890abcdefULL, 0xfedcba0987654321ULL};
  std::vector<std::string> published;
  std::barrier<> barrier;

  /// Meets like the barrier, and calls `work` while it waits: a rank that relays must not sleep.
  void settle(const std::function<void()>& work);
};

/// One rank: its identity and, after connect(), its sockets.
class Rank {
 public:
  Rank(Gathering& shared, std::uint32_t number) : gathering(shared), rank(number) {}

  /// Publishes its endpoints, waits for all, and returns the listener.
  syntony::TcpListener publish(const syntony::TcpOptions& options = {});
  /// The control sockets, then all data sockets, which the higher rank of each pair requests.
  std::vector<syntony::TcpPeer> connect(const syntony::TcpOptions& options = kTwoFlows,
                                        milliseconds timeout = kPatience);
  std::vector<syntony::TcpPeer> connect(syntony::TcpListener listener, const syntony::TcpOptions& options = kTwoFlows,
                                        milliseconds timeout = kPatience);
  std::vector<syntony::TcpPeer> connect(syntony::TcpListener listener, std::span<const std::uint32_t> with,
                                        const syntony::TcpOptions& options = kTwoFlows,
                                        milliseconds timeout = kPatience);
  /// Connects the control sockets; data sockets are made when first needed.
  std::unique_ptr<syntony::TcpMeeting> meet_for_control(const syntony::TcpOptions& options,
                                                        std::vector<syntony::TcpPeer>& peers);
  void meet() { gathering.barrier.arrive_and_wait(); }

  [[nodiscard]] syntony::GroupIdentity identity() const {
    return {.token = gathering.token, .group = 7, .rank = rank, .ranks = gathering.ranks};
  }
  [[nodiscard]] std::vector<std::uint32_t> others() const;
  /// A header that the transport accepts.
  [[nodiscard]] syntony::FrameHeader header(std::uint16_t channel, std::uint32_t length) const {
    return {.token = identity().frame_token(), .group = 7, .channel = channel, .length = length};
  }

  Gathering& gathering;
  std::uint32_t rank;
};

/// Adds the data sockets of `peers` to their control sockets.
void connect_data(syntony::TcpMeeting& meeting, std::uint32_t rank, std::span<syntony::TcpPeer> peers);

/// Runs `body` on `ranks` threads. A rank that throws ends the process: the others would wait for it in vain.
void run_ranks(std::uint32_t ranks, const std::function<void(Rank&)>& body);

/// Blocking; writes everything.
void write_bytes(int socket, std::span<const std::byte> bytes);
template <typename Value>
std::span<const std::byte> bytes_of(const Value& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// A blocking connection to an endpoint, as a stranger would make it.
syntony::UniqueFd knock(const syntony::TcpAddress& address);
/// Closing it will abort the connection: the peer sees a reset, as from a host that went down hard.
void reset_when_closed(int socket);
/// Waits until the descriptor is readable; false after `timeout`.
bool readable(int descriptor, milliseconds timeout);

struct Test {
  std::string_view name;
  void (*run)(std::uint64_t seed);
};
std::span<const Test> address_tests();
std::span<const Test> mesh_tests();
std::span<const Test> stream_tests();
std::span<const Test> failure_tests();
std::span<const Test> failover_tests();
std::span<const Test> encryption_tests();
std::span<const Test> control_tests();
std::span<const Test> relay_tests();
std::span<const Test> cut_tests();
std::span<const Test> many_tests();
void measure();

}  // namespace tests
