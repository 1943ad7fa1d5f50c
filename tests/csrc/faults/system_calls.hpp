// The system calls of the core, of which one can be made to fail. The program defines them, so the library's calls of
// the C library come here first; calls from elsewhere pass.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace syntony::faults {

/// A place in the library that calls the system: how far it is from the library's beginning.
struct Site {
  std::uint64_t offset;
  std::string call;      // "epoll_wait"
  std::string function;  // the exported function around it, or "?"
};

/// From now on in this process: notes the sites that call. Where `offset` is not 0, the `turn`-th call (1, 2, ..) of
/// that site fails with `error`.
void arm(std::uint64_t offset, std::uint64_t turn, int error);
void disarm();
/// Whether the call that was to fail has come.
[[nodiscard]] bool failed();
[[nodiscard]] std::vector<Site> sites();

}  // namespace syntony::faults
