// Which CPUs this process may use, and for how much of their time: its affinity, and the quotas of its control groups.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace syntony {

/// The CPUs that this thread's affinity allows: how many, and the kernel's bits of them, or nothing if it tells none.
struct CpuSet {
  std::size_t count;
  std::string bits;
};
[[nodiscard]] CpuSet allowed_cpus();

/// CPUs' worth of time: at least 1. A quota of 2.5 CPUs counts as 3. `root` has /proc and /sys (tests use others).
[[nodiscard]] std::size_t usable_cpus(const std::filesystem::path& root = "/");

}  // namespace syntony
