// Wakes a process that sleeps in epoll: a Unix datagram socket with a name of its own. Whoever knows the name rings it
// with an empty datagram, so a process needs one descriptor however many peers it has, and passes none to others.
//
// Anybody in this network namespace who finds the name can ring, too. That only causes a spurious wakeup.
#pragma once

#include <string>

#include "core/process/unique_fd.hpp"

namespace syntony {

/// "syntony-<128 random bits>": a unique address in the abstract namespace of Unix sockets.
[[nodiscard]] std::string fresh_unix_address();

class Doorbell {
 public:
  /// Throws Error(system).
  Doorbell();

  [[nodiscard]] const std::string& address() const { return address_; }
  /// Readable if somebody has rung since answer().
  [[nodiscard]] int get() const { return socket_.get(); }
  void answer() const;
  /// Rings the doorbell at `address`. Does nothing if it is already ringing or its process is gone.
  void ring(const std::string& address) const;

 private:
  std::string address_;
  UniqueFd socket_;
};

}  // namespace syntony
