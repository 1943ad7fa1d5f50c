// What wakes a sleeping process out of epoll: a Unix datagram socket with a name of its own. Whoever knows the name
// rings it with an empty datagram, so a process needs one descriptor however many peers it has, and hands none over.
//
// Anybody in this network namespace who finds the name can ring, too. That wakes the process for nothing, no more.
#pragma once

#include <string>

#include "core/process/unique_fd.hpp"

namespace syntony {

/// "syntony-<128 random bits>": an address in the abstract namespace of Unix sockets that no other process has.
[[nodiscard]] std::string fresh_unix_address();

class Doorbell {
 public:
  /// Throws Error(system).
  Doorbell();

  [[nodiscard]] const std::string& address() const { return address_; }
  /// Readable while somebody has rung since answer().
  [[nodiscard]] int get() const { return socket_.get(); }
  void answer() const;
  /// Rings the one at `address`. One that rings already, or whose process is gone, is left alone.
  void ring(const std::string& address) const;

 private:
  std::string address_;
  UniqueFd socket_;
};

}  // namespace syntony
