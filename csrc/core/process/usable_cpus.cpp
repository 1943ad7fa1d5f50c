#include "core/process/usable_cpus.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace syntony {
namespace {

namespace fs = std::filesystem;

/// The quota of one control group. cpu.max is "max 100000" or "250000 100000": microseconds of CPU time per period.
std::optional<double> quota_of(const fs::path& group) {
  std::ifstream unified(group / "cpu.max");
  std::string quota;
  double period = 0;
  if (unified >> quota >> period && quota != "max" && period > 0) return std::strtod(quota.c_str(), nullptr) / period;
  std::ifstream old_quota(group / "cpu.cfs_quota_us"), old_period(group / "cpu.cfs_period_us");  // version 1
  double time = 0;
  if (old_quota >> time && old_period >> period && time > 0 && period > 0) return time / period;
  return std::nullopt;
}

/// The smallest quota of this process's control groups and their ancestors.
std::optional<double> quota(const fs::path& root) {
  std::optional<double> least;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/a/b", or "1:cpu,cpuacct:/a/b"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(",cpu,") == std::string::npos) continue;
    const fs::path mount = root / (unified ? "sys/fs/cgroup" : "sys/fs/cgroup/cpu");
    const fs::path own = fs::path(line.substr(second + 1)).relative_path();
    for (fs::path group = own;; group = group.parent_path()) {
      if (const auto found = quota_of(mount / group)) least = std::min(least.value_or(*found), *found);
      if (group.empty()) break;
    }
  }
  return least;
}

}  // namespace

CpuSet allowed_cpus() {
  constexpr std::size_t kMost = std::size_t{1} << 20U;
  const auto free = [](cpu_set_t* set) { CPU_FREE(set); };
  for (std::size_t cpus = 1024; cpus <= kMost; cpus *= 2) {  // EINVAL: the kernel has more CPUs than fit
    const std::unique_ptr<cpu_set_t, decltype(free)> set(CPU_ALLOC(cpus), free);
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    if (set && ::sched_getaffinity(0, bytes, set.get()) == 0) {
      std::string bits(bytes, '\0');
      std::memcpy(bits.data(), set.get(), bytes);
      return {static_cast<std::size_t>(std::max(1, CPU_COUNT_S(bytes, set.get()))), std::move(bits)};
    }
    if (set && errno != EINVAL) break;
  }
  return {std::max(1U, std::thread::hardware_concurrency()), {}};
}

std::size_t usable_cpus(const fs::path& root) {
  const std::size_t cpus = allowed_cpus().count;
  const std::optional<double> most = quota(root);
  return most ? std::clamp<std::size_t>(static_cast<std::size_t>(std::ceil(*most)), 1, cpus) : cpus;
}

}  // namespace syntony
