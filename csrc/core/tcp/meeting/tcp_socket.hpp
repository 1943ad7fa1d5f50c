// What every TCP socket of a group has in common: never blocking, never delayed, closed on exec, watched while idle.
#pragma once

#include <string>

#include "core/error.hpp"
#include "core/process/unique_fd.hpp"
#include "core/tcp/meeting/tcp_options.hpp"

namespace syntony {

/// "what (Connection refused)", as Error(system).
[[nodiscard]] Error system_error(const std::string& what, int error_number);
/// The operating system's sentence for an errno.
[[nodiscard]] std::string sentence_of(int error_number);

/// A non-blocking TCP socket. Throws Error(system).
[[nodiscard]] UniqueFd open_tcp_socket(int family);

/// No delay, the buffer sizes that the user asked for, and keepalive: a host that vanishes sends no farewell. An idle
/// connection to it is given up after options.keepalive seconds, for half of which it is left alone; then a probe goes
/// out every second.
void tune_data_socket(int socket, const TcpOptions& options);
/// No delay, keepalive, and the same limit on unacknowledged bytes (TCP_USER_TIMEOUT). Data sockets must not have the
/// latter: the kernel would also count the time for which a live peer, busy computing, reads nothing.
void tune_control_socket(int socket, const TcpOptions& options);
/// Buffer sizes must be known before a connection is made (the window scale is fixed then): for listeners and dialers.
void size_buffers(int socket, const TcpOptions& options);

/// True when the peer's kernel has everything that was written to the socket, or never will because it is broken. Only
/// then does closing it lose nothing: a close with unread input resets the connection and drops what is on its way.
[[nodiscard]] bool acknowledged(int socket);

}  // namespace syntony
