#include "core/one_host/read_permission.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <fstream>
#include <mutex>
#include <set>

namespace syntony {
namespace {

/// Everyone whom this process lets read its memory; the kernel keeps one setting per process, so this is a singleton.
struct Readers {
  std::mutex mutex;
  std::multiset<pid_t> processes;
};

Readers& all_readers() {
  static auto* const readers = new Readers;  // never destroyed: groups may outlive static objects
  return *readers;
}

bool only_ancestors_may_read() {
  std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  return file >> scope && scope == 1;
}

void tell(const std::multiset<pid_t>& readers) {
#ifdef PR_SET_PTRACER
  const bool several = !readers.empty() && *readers.begin() != *readers.rbegin();
  const auto named = readers.empty() ? 0UL : static_cast<unsigned long>(*readers.begin());
  ::prctl(PR_SET_PTRACER, several ? PR_SET_PTRACER_ANY : named, 0, 0, 0);
#endif
}

}  // namespace

ReadPermission::ReadPermission(std::span<const pid_t> readers) {
  if (!only_ancestors_may_read()) return;
  for (const pid_t reader : readers) {
    if (reader != ::getpid()) readers_.push_back(reader);
  }
  if (readers_.empty()) return;
  Readers& all = all_readers();
  const std::scoped_lock lock(all.mutex);
  all.processes.insert(readers_.begin(), readers_.end());
  tell(all.processes);
}

ReadPermission::~ReadPermission() {
  if (readers_.empty()) return;
  Readers& all = all_readers();
  const std::scoped_lock lock(all.mutex);
  for (const pid_t reader : readers_) all.processes.erase(all.processes.find(reader));
  tell(all.processes);
}

}  // namespace syntony
