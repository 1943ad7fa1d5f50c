// Notices that a process of this host has ended: by a pidfd or, if there is none (old kernels, seccomp, no descriptor
// left), through /proc. A zombie counts as ended even before it is reaped.
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
  /// Becomes readable when the process ends; -1 if only ended() can tell.
  [[nodiscard]] int descriptor() const { return pidfd_.get(); }

 private:
  pid_t process_;
  UniqueFd pidfd_;
  std::uint64_t born_ = 0;  // start time in clock ticks after boot; distinguishes a later process with the same pid
  std::chrono::steady_clock::time_point next_look_;
  bool ended_ = false;
};

}  // namespace syntony
