// Yama, the security module (ptrace_scope 1, as Ubuntu sets it), lets only ancestors of a process read its memory,
// unless the process names somebody else. It can name one process (and with it that one's descendants), or all.
//
// While groups are alive whose ranks read each other's memory: a process with one peer names that peer, one with
// several has to name all processes of its user. Where Yama is not, or does not restrict to ancestors, nothing is said.
#pragma once

#include <sys/types.h>

#include <span>
#include <vector>

namespace syntony {

class ReadPermission {
 public:
  ReadPermission() = default;  // for nobody
  /// Withdrawn when the last one is gone that needs it.
  explicit ReadPermission(std::span<const pid_t> readers);
  ~ReadPermission();
  ReadPermission(const ReadPermission&) = delete;
  ReadPermission& operator=(const ReadPermission&) = delete;

 private:
  std::vector<pid_t> readers_;
};

}  // namespace syntony
