#include "core/shm/process_watch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <sstream>
#include <string>

namespace syntony {
namespace {

struct ProcessFacts {
  bool alive = false;
  std::uint64_t born = 0;
};

constexpr std::chrono::milliseconds kLookInterval{50};  // between reads of /proc, which are slow

/// Empty if the system does not tell, which says nothing about the process.
std::optional<ProcessFacts> facts_of(pid_t process) {
  const UniqueFd file(::open(("/proc/" + std::to_string(process) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> text{};
  const ssize_t length = file ? ::read(file.get(), text.data(), text.size()) : -1;
  if (length <= 0) {
    if (errno != ENOENT && errno != ESRCH) return std::nullopt;
    if (::kill(process, 0) == 0 || errno != ESRCH) return std::nullopt;  // alive: /proc is missing or restricted
    return ProcessFacts{};
  }
  // "pid (name) state ..": the start time is field 22; the name may hold anything, including parentheses.
  const std::string line(text.data(), static_cast<std::size_t>(length));
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  constexpr int kStateField = 3, kBornField = 22;
  char state = '?';
  fields >> state;
  std::string skipped;
  for (int field = kStateField + 1; field < kBornField; ++field) fields >> skipped;
  ProcessFacts facts;
  fields >> facts.born;
  facts.alive = state != 'Z' && state != 'X' && state != 'x';
  return facts;
}

}  // namespace

ProcessWatch::ProcessWatch(pid_t process) : process_(process) {
  pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  if (pidfd_) return;
  if (const auto facts = facts_of(process)) {
    born_ = facts->born;
    ended_ = !facts->alive;
  }
}

bool ProcessWatch::ended() {
  if (ended_) return true;
  if (pidfd_) {
    pollfd entry{pidfd_.get(), POLLIN, 0};
    ended_ = ::poll(&entry, 1, 0) > 0;
    return ended_;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return false;
  next_look_ = now + kLookInterval;
  if (const auto facts = facts_of(process_)) {
    ended_ = !facts->alive || (born_ != 0 && facts->born != born_);
  }
  return ended_;
}

}  // namespace syntony
