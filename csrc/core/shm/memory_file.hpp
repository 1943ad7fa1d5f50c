// Memory shared by processes: a memfd, which has no name in any file system, so nothing is left behind however a
// process ends.
#pragma once

#include <sys/mman.h>

#include <cerrno>

#include "core/process/unique_fd.hpp"

namespace syntony {

/// Empty on failure, with errno set.
[[nodiscard]] inline UniqueFd memory_file(const char* name) {
  constexpr unsigned kNeverExecutable = 0x8;  // MFD_NOEXEC_SEAL: required with vm.memfd_noexec=2
  UniqueFd file(::memfd_create(name, MFD_CLOEXEC | kNeverExecutable));
  if (!file && errno == EINVAL) file.reset(::memfd_create(name, MFD_CLOEXEC));  // Linux before 6.3
  return file;
}

}  // namespace syntony
