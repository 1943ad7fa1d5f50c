// Notices that a process of this host has ended: by a pidfd, or, where there is none (old kernels, seccomp, no
// descriptor left), by what /proc says. A zombie has ended, whoever has still to reap it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>

#include "core/process/unique_fd.hpp"

namespace syntony {

class ProcessWatch {
 public:
  explicit ProcessWatch(pid_t process);

  [[nodiscard]] bool ended();
  /// Becomes readable when the process ends; -1 where only ended() tells.
  [[nodiscard]] int descriptor() const { return pidfd_.get(); }

 private:
  pid_t process_;
  UniqueFd pidfd_;
  std::uint64_t born_ = 0;  // its start in clock ticks after boot: another process with its number has another
  std::chrono::steady_clock::time_point next_look_;
  bool ended_ = false;
};

}  // namespace syntony
