#include "core/process/relocation.hpp"

#include <sched.h>

#include <algorithm>

namespace syntony {

bool Relocation::due() {
  const Clock::time_point now = Clock::now();
  if (now < next_) return false;
  next_ = now + kShortest;
  return true;
}

void Relocation::woken() {
  pause_ = kShortest;
  next_ = last_ = Clock::time_point::min();
}

// A cpu_set_t has room for 1024 CPUs; on a machine with more the call fails, and the thread never moves.
std::span<const std::uint32_t> Relocation::allowed() {
  allowed_.clear();
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) allowed_.push_back(cpu);
    }
  }
  return allowed_;
}

void Relocation::go(std::uint32_t cpu) {
  const Clock::time_point now = Clock::now();
  const bool soon = last_ != Clock::time_point::min() && now - last_ < pause_ * kSoon;
  pause_ = soon ? std::min<Clock::duration>(pause_ * 2, kLongest) : kShortest;
  last_ = now;
  next_ = now + pause_;
  cpu_set_t before, there;
  if (::sched_getaffinity(0, sizeof(before), &before) != 0) return;
  CPU_ZERO(&there);
  CPU_SET(cpu, &there);
  if (::sched_setaffinity(0, sizeof(there), &there) == 0) ::sched_setaffinity(0, sizeof(before), &before);
}

}  // namespace syntony
