// What every TCP socket of a group has in common: non-blocking, no delay, closed on exec, keepalive while idle.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "core/error.hpp"
#include "core/process/unique_fd.hpp"
#include "core/tcp/meeting/tcp_options.hpp"

namespace syntony {

/// "what (Connection refused)", as Error(system).
[[nodiscard]] Error system_error(const std::string& what, int error_number);
/// The operating system's message for an errno; EPROTO is what encrypted connections end with (tls_session.hpp).
[[nodiscard]] std::string sentence_of(int error_number);

/// A non-blocking TCP socket. Throws Error(system).
[[nodiscard]] UniqueFd open_tcp_socket(int family);

/// No delay, the buffer sizes that the user asked for, and keepalive, because a host that vanishes sends no goodbye. An
/// idle connection to it is given up after options.keepalive seconds: half of that passes without probes, then one is
/// sent every second.
void tune_data_socket(int socket, const TcpOptions& options);
/// No delay, keepalive, and the same limit on unacknowledged bytes (TCP_USER_TIMEOUT). Data sockets must not have that
/// limit: the kernel would also count the time in which a live peer, busy computing, does not read.
void tune_control_socket(int socket, const TcpOptions& options);
/// Lets the peer send `bytes` of which this rank has read nothing, unless the user has set the receive buffer. The
/// kernel starts with 64 KiB and allows more as it sees this rank read faster, which it does on some connections and
/// not on others: all_gather of 16 MiB between two hosts took 7 ms or 12.
void make_room(int socket, std::size_t bytes);
/// Buffer sizes must be set before a connection is made (which fixes the window scale), on listeners and dialers.
void size_buffers(int socket, const TcpOptions& options);

/// Whether the other end still answers, as far as the kernel knows.
struct SocketPulse {
  bool waiting = false;                // something was sent and is not acknowledged
  unsigned unanswered = 0;             // repetitions and probes since the last answer
  std::chrono::milliseconds silent{};  // since the last packet that acknowledged anything
};
[[nodiscard]] SocketPulse pulse_of(int socket);
/// True if the peer's kernel has everything that was written to the socket, or never will because it is broken. Only
/// then does closing lose nothing: closing with unread input resets the connection and drops what is in flight.
[[nodiscard]] bool acknowledged(int socket);
/// Bytes written to the socket that the peer's kernel has not acknowledged.
[[nodiscard]] std::size_t unacknowledged(int socket);

}  // namespace syntony
