// What the two sides of a handshake (tcp_wire.hpp) share: connections being accepted, connections being made, and
// messages that may arrive in pieces.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "core/tcp/meeting/tcp_meeting.hpp"
#include "core/tls/tls_session.hpp"

namespace syntony {

/// Limits for strangers that connect and stay silent: their number and their time. A rank sends its Hello immediately.
inline constexpr std::size_t kMostGuests = 256;
/// How long a connection attempt may go unanswered before the next address is tried; doubled in every round.
inline constexpr std::chrono::milliseconds kFirstPatience{1000};

/// A connection being accepted: a peer that has not yet proven to be a rank.
struct TcpMeeting::Guest {
  UniqueFd socket;  // empty once welcomed or dropped
  TcpAddress address;
  Clock::time_point deadline;
  Hello hello{};
  Ack ack{};  // what it was sent, once its Hello is valid
  Answer answer{};
  std::size_t received = 0;  // of the message expected next
  bool challenged = false;   // the Ack was sent
  bool parked = false;       // we dial this rank, and our dials count: it hangs up once it has our Hello
  bool ready = false;        // something to read
};

struct TcpMeeting::Candidate {
  TcpAddress address;
  std::string
      refusal{};    // NOLINT(readability-redundant-member-init): why it is out for good; empty while there is hope
  int refused = 0;  // the errno behind it
  int hang_ups = 0;
};

/// A connection being made: one socket of one pair.
struct TcpMeeting::Dial {
  std::uint32_t rank = 0;
  std::uint16_t flow = 0;
  std::vector<Candidate> candidates;
  TcpAddress from;  // this rank's end, if that matters
  std::size_t current = 0;
  Clock::duration patience = kFirstPatience;
  Clock::time_point give_up;   // end of this attempt, until it is connected; or of a pause
  Clock::time_point deadline;  // of all attempts
  bool connected = false;      // then it waits for the Ack
  bool pausing = false;        // before the same address is tried again
  bool greeted = false;        // a Hello has been sent, over this connection or an earlier one
  bool called_back = false;    // the other rank cannot dial this one: it is not asked to
  bool asked = false;          // it has been asked to dial
  bool waiting = false;        // for it to do so: no address is left
  bool over = false;           // settled, given up or no longer wanted
  UniqueFd socket;             // empty while pausing and once over
  Hello hello;
  Ack ack;
  Welcome welcome;
  std::size_t received = 0;  // of the message expected next
  bool answered = false;     // the Ack was answered; the Welcome is next
  bool ready = false;        // something to read, or now connected
};

/// Of this connection alone: it depends on the numbers that both ends have made up for it.
[[nodiscard]] inline TlsKey key_of(const Hello& hello, const Ack& ack, const SipKey& token) {
  std::string said = "syntony tls";
  said.append(reinterpret_cast<const char*>(&hello), sizeof(hello));
  said.append(reinterpret_cast<const char*>(&ack), sizeof(ack));
  return tls_key(std::as_bytes(std::span(token)), said);
}

enum class Reading { pending, complete, failed };

/// Continues reading into `message`; `failed` at end of file or error, with errno set (0 for end of file).
template <typename Message>
Reading read_on(int socket, Message& message, std::size_t& received) {
  while (received < sizeof(Message)) {
    const ssize_t n =
        recv(socket, reinterpret_cast<std::byte*>(&message) + received, sizeof(Message) - received, MSG_DONTWAIT);
    if (n > 0) {
      received += static_cast<std::size_t>(n);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return Reading::pending;
    } else {
      if (n == 0) errno = 0;
      return Reading::failed;
    }
  }
  return Reading::complete;
}

/// Sends a message of a few bytes into an empty socket buffer: all or nothing.
template <typename Message>
bool write_whole(int socket, const Message& message) {
  return send(socket, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof(message));
}

/// The errno with which a connection broke, 0 if the other side closed it; empty while it is intact.
[[nodiscard]] inline std::optional<int> end_of(int socket) {
  std::byte first{};
  const ssize_t n = recv(socket, &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n == 0) return 0;
  if (n > 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return std::nullopt;
  return errno;
}

/// True if the connection has ended, even if something that arrived before is still to be read.
[[nodiscard]] inline bool ended(int socket) {
  pollfd state{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return poll(&state, 1, 0) > 0;
}

}  // namespace syntony
