#include "core/progress/progress_engine.hpp"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/process/host.hpp"

namespace syntony {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTendInterval{2};
constexpr milliseconds kLongestSleep{20};
constexpr milliseconds kShortestSleep{1};
constexpr milliseconds kLook{100};  // interval at which a wait checks for signals

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

UniqueFd make_eventfd() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) throw Error(Error::Kind::system, system_sentence("cannot create an eventfd"));
  return fd;
}

UniqueFd make_epoll() {
  UniqueFd fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!fd) throw Error(Error::Kind::system, system_sentence("cannot create an epoll"));
  return fd;
}

void watch(const UniqueFd& poll, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(poll.get(), EPOLL_CTL_ADD, fd, &event) != 0 && errno != EEXIST) {
    throw Error(Error::Kind::system, system_sentence("cannot watch a descriptor"));
  }
}

void unwatch(const UniqueFd& poll, int fd) { ::epoll_ctl(poll.get(), EPOLL_CTL_DEL, fd, nullptr); }

void drain(const UniqueFd& event) {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event.get(), &count, sizeof(count));
}

}  // namespace

/// What an owner does while nothing moves: spin, yield, sleep.
///
/// Spinning pays off if the peers run on other CPUs, and only harms if one of them waits for ours. The outcome of each
/// wait tells which: if it ended while spinning, the next one may spin longer; if later, it spins less.
class ProgressEngine::Backoff {
 public:
  Backoff(ProgressEngine& engine, Caller owner) : engine_(engine), owner_(owner) {}

  void moved() {
    if (idle_ > 0) {
      const unsigned spins = spins_now();
      if (idle_ > spins) adapt(engine_.yields_, idle_ <= spins + engine_.yields_, kFewestYields, kMostYields);
      if (!engine_.crowded_) adapt(engine_.spins_, idle_ <= spins, kFewestSpins, kMostSpins);
    }
    idle_ = 0;
    watched_ = {};
    nap_ = kTendInterval;
    if (++moves_ % 1024 == 0) tend_if_due();  // one group's traffic must not hide another's failure
  }

  void idle(std::optional<Work::Clock::time_point> deadline) {
    ++idle_;
    if (idle_ % kGlances == 0) glance();
    const unsigned each = engine_.crowded_ ? kCrowdedGlances : kGlances;
    if (++engine_.idle_turns_ % each == 0 || engine_.shares_cpu_) engine_.look_around();
    const unsigned spins = spins_now();
    if (idle_ <= spins || watches()) {
      (engine_.shares_cpu_ || engine_.company_ > 0) && !others_compute() ? yield() : pause();
    } else if ((idle_ <= spins + engine_.yields_ && !others_compute()) || engine_.holding_) {
      yield();
    } else {
      milliseconds nap = nap_;
      if (deadline)
        nap = std::clamp(std::chrono::ceil<milliseconds>(*deadline - Work::Clock::now()), milliseconds{0}, nap);
      // What woke us may be a failure: always if it was a control descriptor, possibly if it was the doorbell.
      switch (engine_.sleep(owner_, nap)) {
        case Wake::nothing:
          nap_ = std::min(nap_ * 2, kLongestSleep);
          break;
        case Wake::traffic:
          nap_ = kTendInterval;
          break;
        case Wake::control:
          trouble_ = true;  // all groups are tended immediately
          break;
      }
      tend_if_due();
    }
    if (idle_ % 64 == 0) tend_if_due();
  }

  /// True if the current wait has lasted for kLook.
  [[nodiscard]] bool lasts() const { return lasts_; }

 private:
  static constexpr unsigned kFewestSpins = 64;
  static constexpr unsigned kMostSpins = 1024;  // about 40 us in shared memory
  static constexpr unsigned kFewestYields = 32;
  static constexpr unsigned kMostYields = 128;
  static constexpr unsigned kGlances = 16;        // looks at the clock once per this many idle turns
  static constexpr unsigned kCrowdedGlances = 4;  // looks at the CPU as often if each turn is a yield
  static constexpr std::chrono::microseconds kShortestWatch{50};
  static constexpr std::chrono::microseconds kLongestSpin{60};
  static constexpr std::chrono::microseconds kLongestWatch{300};  // spins and yields together
  static constexpr std::chrono::microseconds kAlone{2};           // a longer yield has let somebody else run,
  static constexpr unsigned kPolite = 256;                        // for whom this many more are made instead of spins
  static constexpr unsigned kAll = 16;                            // busy groups are tended this often before all are

  [[nodiscard]] unsigned spins_now() const { return engine_.crowded_ ? 0 : engine_.spins_; }

  /// A blocked caller keeps polling for as long as it would take to wake it: if it slept, its peers would wait for it
  /// and then sleep, too, and each operation would pay for wakeups again.
  [[nodiscard]] bool watches() const {
    return owner_ == Caller::driver && !engine_.crowded_ && watched_ < kShortestWatch;
  }

  /// Doubles patience if it was enough, else halves it: long waits then sleep right from the start.
  static void adapt(unsigned& patience, bool enough, unsigned least, unsigned most) {
    patience = enough ? std::min(patience * 2, most) : std::max(patience / 2, least);
  }

  /// Turns differ: those that read sockets take ten times as long, so patience is also limited by the clock.
  void glance() {
    const auto now = Work::Clock::now();
    if (idle_ == kGlances) idle_since_ = now;
    const Work::Clock::duration watched = watched_ = now - idle_since_;
    if (!engine_.crowded_ && idle_ <= engine_.spins_ && watched > kLongestSpin) {
      engine_.spins_ = std::max(idle_ / 2, kFewestSpins);
    }
    if (watched > kLongestWatch) engine_.yields_ = std::max(engine_.yields_ / 2, kFewestYields);
  }

  /// Among ranks that wait for each other, yielding is the fastest: microseconds.
  void yield() {
    const auto before = Work::Clock::now();
    ::sched_yield();
    const auto after = Work::Clock::now();
    if (!engine_.others_load_.yielded(before, after)) {
      if (after - before > kAlone) {
        engine_.company_ = kPolite;
      } else if (engine_.company_ > 0) {
        --engine_.company_;
      }
    }
    tend_if_due();
  }
  [[nodiscard]] bool others_compute() const { return engine_.others_load_.lasts(); }

  void tend_if_due() {
    const auto now = Work::Clock::now();
    if (last_tended_ == kNever) last_tended_ = begun_ = now;  // most waits end before this and read no clock
    lasts_ = now - begun_ >= kLook;
    if (!trouble_ && now - last_tended_ < kTendInterval) return;
    last_tended_ = now;
    engine_.tend(std::exchange(trouble_, false) || ++times_tended_ % kAll == 0);
  }

  ProgressEngine& engine_;
  const Caller owner_;
  unsigned idle_ = 0;
  Work::Clock::time_point idle_since_;  // when its first turns were,
  Work::Clock::duration watched_{};     // and the time since then at the last glance
  unsigned moves_ = 0;
  milliseconds nap_ = kTendInterval;
  Work::Clock::time_point last_tended_ = kNever;
  Work::Clock::time_point begun_ = kNever;
  bool lasts_ = false;
  bool trouble_ = false;  // a control descriptor has woken us
  unsigned times_tended_ = 0;
};

ProgressEngine::ProgressEngine() : submit_(make_eventfd()), owner_poll_(make_epoll()), idle_poll_(make_epoll()) {
  watch(owner_poll_, doorbell_.get(), EPOLLIN);
  watch(owner_poll_, submit_.get(), EPOLLIN);
  watch(idle_poll_, submit_.get(), EPOLLIN);
  watch(idle_poll_, grace_.timer().get(), EPOLLIN);
}

ProgressEngine::~ProgressEngine() {
  if (forked()) {  // threads do not survive fork: there is nothing to join
    [[maybe_unused]] auto* progress = progress_thread_.release();
    completions_.abandon();
    return;
  }
  stop_ = true;
  nudge();
  if (progress_thread_) progress_thread_->join();
}

void ProgressEngine::start_threads() {
  std::call_once(threads_started_, [this] {
    completions_.start();
    progress_thread_ = std::make_unique<std::thread>([this] { run_progress(); });
  });
}

void ProgressEngine::add(Steppable& steppable, std::span<const int> data, std::span<const int> control) {
  start_threads();
  visit();
  groups_.push_back(&steppable);
  for (const int fd : data) watch(owner_poll_, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  for (const int fd : control) {
    // Edge-triggered: a dead peer's pidfd stays readable forever.
    watch(owner_poll_, fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
    watch(idle_poll_, fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
    control_.push_back(fd);
  }
  release();
}

void ProgressEngine::remove(Steppable& steppable, std::span<const int> data, std::span<const int> control) {
  visit();
  std::erase(groups_, &steppable);
  for (const int fd : data) unwatch(owner_poll_, fd);
  for (const int fd : control) {
    unwatch(owner_poll_, fd);
    unwatch(idle_poll_, fd);
    std::erase(control_, fd);
  }
  release();
}

void ProgressEngine::nudge() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(submit_.get(), &one, sizeof(one));
}

void ProgressEngine::crowd() { crowded_ = true; }

void ProgressEngine::submitted() {
  if (!grace_.begin()) nudge();
}

void ProgressEngine::unattended() { nudge(); }

void ProgressEngine::finished() {
  // The work was marked as done before this; a driver that starts to wait checks that after it has counted itself.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (waiting_.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(mutex_);
  role_.notify_all();
}

// A driver waits for the role, or until the current owner has done its work. Our own thread has the lowest precedence.
bool ProgressEngine::acquire(Caller caller, const Work* work, std::optional<Work::Clock::time_point> deadline) {
  const auto free = [this] { return !owned_ && visiting_.load() == 0; };
  std::unique_lock lock(mutex_);
  if (caller == Caller::thread) {
    role_.wait(lock, [&] { return free() && waiting_.load() == 0; });
  } else if (!free()) {
    waiting_.fetch_add(1);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (owner_asleep_.load()) nudge();
    const auto wanted = [&] { return free() || (work != nullptr && work->done()); };
    const auto look = Work::Clock::now() + kLook;
    role_.wait_until(lock, deadline ? std::min(*deadline, look) : look, wanted);
    waiting_.fetch_sub(1);
    if (!free()) {
      role_.notify_all();  // the thread may have yielded the role to us
      return false;
    }
  }
  own(caller);
  return true;
}

// Requires the mutex.
void ProgressEngine::own(Caller caller) {
  owned_ = true;
  owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  driven_.store(caller == Caller::driver, std::memory_order_relaxed);
  if (caller == Caller::driver) grace_.driven();
}

bool ProgressEngine::try_acquire() {
  const std::lock_guard lock(mutex_);
  if (owned_ || visiting_.load() != 0 || waiting_.load() != 0) return false;
  own(Caller::driver);
  return true;
}

// Called by the thread when the grace's timer has fired. If somebody owns progress, another grace begins on release.
bool ProgressEngine::take_over() {
  grace_.looks();
  {
    const std::lock_guard lock(mutex_);
    if (owned_ || visiting_.load() != 0 || waiting_.load() != 0) {
      grace_.in_vain();
      return false;
    }
    own(Caller::thread);
  }
  if (any_busy() && grace_.over()) return true;
  grace_.in_vain();
  release();
  return false;
}

void ProgressEngine::visit() {
  std::unique_lock lock(mutex_);
  visiting_.fetch_add(1);
  if (owner_asleep_.load()) nudge();
  role_.wait(lock, [this] { return !owned_; });
  visiting_.fetch_sub(1);
  own(Caller::driver);
}

// A thread that submits after this check finds that nobody owns progress; take_over() checks under the mutex, too.
void ProgressEngine::release() {
  bool more = false;
  {
    const std::lock_guard lock(mutex_);
    more = any_busy() && !stop_;
    owned_ = false;
    owner_.store({}, std::memory_order_relaxed);
  }
  role_.notify_all();
  if (more) submitted();
}

void ProgressEngine::pass_and_release() {
  pass();
  release();
}

bool ProgressEngine::pass() {
  bool moved = false;
  unsigned active = 0;
  for (Steppable* group : groups_) {
    moved |= group->begin();
    active |= group->active();
  }
  return pass(active) || moved;
}

// Nearly always only one priority has operations; then no clock need be read.
bool ProgressEngine::pass(unsigned active) {
  const bool several = (active & (active - 1)) != 0;
  bool moved = false;
  Share share = Share::all;
  Work::Clock::time_point held_until{};
  holding_ = false;
  for (const Priority priority : kMostUrgentFirst) {
    const unsigned bit = 1U << index_of(priority);
    if ((active & bit) == 0) continue;
    Work::Clock::duration breath{};
    bool left = false;
    for (Steppable* group : groups_) {
      if (!group->active(priority)) continue;
      const bool it_moved = group->step(priority, share);
      moved |= it_moved;
      if (it_moved || (moving_ & bit) == 0) breath = std::max(breath, group->breath());
      left |= group->active(priority);
    }
    if (!several || !left) continue;
    const Work::Clock::time_point now = Work::Clock::now();
    Work::Clock::time_point& until = moving_until_[index_of(priority)];
    until = std::max(until, now + breath);
    held_until = std::max(held_until, until);
    share = now < held_until ? Share::none : Share::little;
    holding_ = now < held_until && held_until - now < kShortestSleep;
  }
  moving_ = several ? active : 0;
  return moved;
}

void ProgressEngine::tend(bool all) {
  for (Steppable* group : groups_) {
    if (all || group->busy()) group->tend();
  }
}

bool ProgressEngine::any_busy() const {
  return std::ranges::any_of(groups_, [](const Steppable* group) { return group->busy(); });
}

// Schedulers tend to place a woken thread on its waker's CPU. Two ranks stay there though other CPUs are idle, and each
// of their turns takes as long as the other one spins, 80 us instead of 1. A rank that detects this yields, and moves
// to a CPU with fewer ranks (relocation.hpp).
void ProgressEngine::look_around() {
  const int found = ::sched_getcpu();
  if (found < 0) return;
  const auto cpu = static_cast<std::uint32_t>(found);
  bool meets = false;
  for (Steppable* group : groups_) meets |= group->meets_on(cpu);
  shares_cpu_ = meets && !crowded_;
  if (meets && relocation_.due() && !others_load_.lasts()) make_room(cpu);
}

void ProgressEngine::make_room(std::uint32_t cpu) {
  const std::span<const std::uint32_t> allowed = relocation_.allowed();
  for (Steppable* group : groups_) {
    const std::optional<std::uint32_t> emptier = group->emptier(cpu, allowed);
    if (!emptier) continue;
    relocation_.go(*emptier);
    for (Steppable* each : groups_) each->meets_on(*emptier);
    shares_cpu_ = false;
    return;
  }
}

ProgressEngine::Wake ProgressEngine::sleep(Caller owner, milliseconds at_most) {
  Wake wake = Wake::nothing;
  for (Steppable* group : groups_) group->sleeping(true);
  owner_asleep_ = true;
  const bool wanted = visiting_ > 0 || (owner == Caller::thread && waiting_ > 0);
  if (!wanted && !pass()) {
    std::array<epoll_event, 16> events;
    const int count = ::epoll_wait(owner_poll_.get(), events.data(), events.size(), static_cast<int>(at_most.count()));
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == doorbell_.get()) doorbell_.answer();
      if (fd == submit_.get()) drain(submit_);
      const bool control = std::ranges::find(control_, fd) != control_.end();
      wake = std::max(wake, control ? Wake::control : Wake::traffic);
    }
  }
  owner_asleep_ = false;
  for (Steppable* group : groups_) group->sleeping(false);
  relocation_.woken();
  look_around();
  return wake;
}

bool ProgressEngine::drive(const Work& work, std::optional<Work::Clock::time_point> deadline, bool interruptible) {
  while (!work.done()) {
    if (acquire(Caller::driver, &work, deadline)) drive_acquired(work, deadline);
    if (work.done()) break;
    if (deadline && Work::Clock::now() >= *deadline) return false;
    if (interruptible && interrupt_) interrupt_();
  }
  return true;
}

void ProgressEngine::drive_acquired(const Work& work, std::optional<Work::Clock::time_point> deadline) {
  Backoff backoff(*this, Caller::driver);
  bool late = false;
  while (!work.done() && !late && !backoff.lasts() && visiting_ == 0) {
    if (pass()) {
      backoff.moved();
    } else {
      backoff.idle(deadline);
      late = deadline && Work::Clock::now() >= *deadline;
    }
  }
  release();
}

void ProgressEngine::run_progress() {
  while (!stop_) {
    std::array<epoll_event, 16> events;
    const int count = ::epoll_wait(idle_poll_.get(), events.data(), events.size(), -1);
    if (count == 1 && events.front().data.fd == grace_.timer().get()) {
      if (!take_over()) continue;
    } else {
      acquire(Caller::thread, nullptr, std::nullopt);
      drain(submit_);
      tend(true);
    }
    Backoff backoff(*this, Caller::thread);
    while (!stop_ && any_busy()) {
      if (waiting_ > 0 || visiting_ > 0) {  // a driver takes over; release() wakes us if it leaves something
        break;
      }
      if (pass()) {
        backoff.moved();
      } else {
        backoff.idle(std::nullopt);
      }
    }
    release();
  }
}

}  // namespace syntony
