// Preloaded into a process: its time of day jumps an hour ahead and back, as if the clock was set while it runs.
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {

time_t jumped(time_t seconds) {
  static std::atomic<unsigned> turns = 0;
  return seconds + (turns++ % 2 == 0 ? 3600 : -3600);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long done = syscall(SYS_clock_gettime, clock, now);
  if (done == 0 && clock == CLOCK_REALTIME) now->tv_sec = jumped(now->tv_sec);
  return static_cast<int>(done);
}

int gettimeofday(timeval* now, void* /*zone*/) noexcept {
  timespec exact{};
  clock_gettime(CLOCK_REALTIME, &exact);
  *now = {exact.tv_sec, exact.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* now) noexcept {
  timespec exact{};
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now != nullptr) *now = exact.tv_sec;
  return exact.tv_sec;
}
}
