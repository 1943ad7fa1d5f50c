// Yama, the security module (ptrace_scope 1, as set by Ubuntu), lets only ancestors of a process read its memory,
// unless the process names another one. It can name one process (and thereby its descendants), or all.
//
// While groups exist whose ranks read each other's memory, a process with one peer names that peer, and one with
// several has to name all processes of its user. Without Yama, or if it does not restrict to ancestors, nothing is
// done.
#pragma once

#include <sys/types.h>

#include <span>
#include <vector>

namespace syntony {

class ReadPermission {
 public:
  ReadPermission() = default;  // permits nobody
  /// Withdrawn when the last permission that needs it is destroyed.
  explicit ReadPermission(std::span<const pid_t> readers);
  ~ReadPermission();
  ReadPermission(const ReadPermission&) = delete;
  ReadPermission& operator=(const ReadPermission&) = delete;

 private:
  std::vector<pid_t> readers_;
};

}  // namespace syntony
