// How many CPUs' worth of time this process may use: its affinity, bounded by the quotas of its control groups.
#pragma once

#include <cstddef>
#include <filesystem>

namespace syntony {

/// At least 1. A quota of 2.5 CPUs counts as 3. `root` is where /proc and /sys are (tests use others).
[[nodiscard]] std::size_t usable_cpus(const std::filesystem::path& root = "/");

}  // namespace syntony
