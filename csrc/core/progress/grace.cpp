#include "core/progress/grace.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include "core/error.hpp"
#include "core/process/host.hpp"

namespace syntony {
namespace {

UniqueFd make_timer() {
  UniqueFd fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!fd) throw Error(Error::Kind::system, system_sentence("cannot create a timer"));
  return fd;
}

Grace::Clock::rep ticks_now() { return Grace::Clock::now().time_since_epoch().count(); }

}  // namespace

Grace::Grace() : timer_(make_timer()) {}

bool Grace::begin() {
  Clock::rep somebody = 0;
  since_.compare_exchange_strong(somebody, ticks_now(), std::memory_order_relaxed);
  if (set_.exchange(true, std::memory_order_acq_rel)) return true;
  itimerspec when{};
  when.it_value.tv_nsec = std::chrono::nanoseconds(patience_.load(std::memory_order_relaxed)).count();
  if (::timerfd_settime(timer_.get(), 0, &when, nullptr) == 0) return true;
  set_.exchange(false, std::memory_order_acq_rel);
  return false;
}

// A thread that begins earlier sees the timer set, and what it put in flight is seen by the look that follows.
void Grace::looks() {
  std::uint64_t times = 0;
  [[maybe_unused]] const ssize_t got = ::read(timer_.get(), &times, sizeof(times));
  set_.exchange(false, std::memory_order_acq_rel);
}

bool Grace::over() {
  const Clock::rep since = since_.load(std::memory_order_relaxed);
  if (since == 0 || Clock::duration(ticks_now() - since) < kShortest) return false;
  patience_ = kShortest;
  return true;
}

}  // namespace syntony
