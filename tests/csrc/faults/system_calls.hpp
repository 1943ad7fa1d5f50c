// The core's system calls, one of which can be made to fail. The program defines them, so the library's calls of the C
// library arrive here first; calls from elsewhere pass through.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace syntony::faults {

/// A place in the library that makes a system call, by its offset from the library's beginning.
struct Site {
  std::uint64_t offset;
  std::string call;      // "epoll_wait"
  std::string function;  // the exported function around it, or "?"
};

/// From now on in this process: records the sites that call. If `offset` is not 0, the `turn`-th call (1, 2, ..) of
/// that site fails with `error`.
void arm(std::uint64_t offset, std::uint64_t turn, int error);
void disarm();
/// True if the call that was to fail has been made.
[[nodiscard]] bool failed();
[[nodiscard]] std::vector<Site> sites();

}  // namespace syntony::faults
