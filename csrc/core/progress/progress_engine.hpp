// Who makes progress, and where everybody else waits.
//
// One progress engine per process serves all groups. At any time at most one thread owns progress: the progress
// engine's own thread, or a caller that waits for its operation and so drives everything itself (no hand-over on the
// latency path):
//
//      idle ---- async submit ----> nobody, for a grace (grace.hpp); then, or at once where nobody will wait:
//                                   progress engine's thread: pass, pass, .., sleep in epoll, pass ..
//                                        | a caller wants to wait: the thread hands the role over
//      sync call / Work::wait ----> caller: pass, pass .. until its work is done, then gives the role back
//
// Whoever only visits, to add or remove a group, comes first: a driver may wait long for ranks that need that group.
// A pass gives every group a turn without blocking, priority by priority: what is urgent in any group comes before what
// is less so in all of them, which stand still for as long as it moves and go on with little while it waits (Share,
// priority.hpp). An owner that finds nothing to do spins, then yields, then sleeps in epoll on the doorbell (which
// peers ring), the sockets and the pidfds of local peers, so a death wakes it. Completion callbacks (Python,
// futures) run on threads of their own (completion_threads.hpp).
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "core/priority.hpp"
#include "core/process/relocation.hpp"
#include "core/process/unique_fd.hpp"
#include "core/progress/completion_threads.hpp"
#include "core/progress/grace.hpp"
#include "core/progress/made_here.hpp"
#include "core/progress/work.hpp"
#include "core/shm/doorbell.hpp"

namespace syntony {

/// Something that the owner of progress steps: a Group.
class Steppable {
 public:
  virtual ~Steppable() = default;
  /// What precedes the priorities' turns: takes what was launched and what has come. True when anything moved.
  virtual bool begin() = 0;
  /// One non-blocking turn of a priority that is active; true when anything moved.
  virtual bool step(Priority priority, Share share) = 0;
  /// How long an operation in flight may stand still in between without having stopped: it waits for its peers' next
  /// bytes.
  [[nodiscard]] virtual Work::Clock::duration breath() const = 0;
  /// Which priorities have operations in flight, as of the last begin() or step(): a bit each. For the owner of
  /// progress.
  [[nodiscard]] unsigned active() const { return active_; }
  [[nodiscard]] bool active(Priority priority) const { return (active_ >> index_of(priority) & 1U) != 0; }
  /// Has operations in flight. Any thread may ask.
  [[nodiscard]] virtual bool busy() const = 0;
  /// The slow path, every few milliseconds while blocked and when a control descriptor fires: deadlines, deaths,
  /// aborts.
  virtual void tend() = 0;
  /// Before (true) and after (false) the owner sleeps: peers must then ring.
  virtual void sleeping(bool asleep) = 0;
  /// The owner waits on this CPU: whether a peer that is awake does so, too.
  virtual bool meets_on(std::uint32_t cpu) = 0;
  /// Of the `allowed` CPUs, the one to which the owner should go from there, if it should.
  [[nodiscard]] virtual std::optional<std::uint32_t> emptier(std::uint32_t cpu,
                                                             std::span<const std::uint32_t> allowed) const = 0;

 protected:
  void set_active(Priority priority, bool active) {
    const unsigned bit = 1U << index_of(priority);
    active_ = active ? active_ | bit : active_ & ~bit;
  }

 private:
  unsigned active_ = 0;
};

class ProgressEngine {
 public:
  ProgressEngine();
  ~ProgressEngine();
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;

  /// Steps `steppable` from now on. `data` descriptors wake an owner that sleeps because it is blocked
  /// (edge-triggered); `control` descriptors wake the progress engine's thread at any time (once per change).
  void add(Steppable& steppable, std::span<const int> data, std::span<const int> control);
  /// After it returns, no thread is inside `steppable`. The descriptors must still be open.
  void remove(Steppable& steppable, std::span<const int> data, std::span<const int> control);

  /// So many processes of this host take part in a group. Where they are more than our cores, nobody spins: those one
  /// waits for need the core.
  void shared_with(std::size_t processes);
  /// Something asynchronous was queued: whoever waits for it drives it, and who has not come soon leaves it to the
  /// progress engine's thread.
  void submitted();
  /// Somebody will hear of its end without waiting for it, or peers wait for it: the thread takes it up now.
  void unattended();
  /// What a thread that waits looks after meanwhile, every 100 ms and without owning progress: signals, in Python. What
  /// it throws ends the wait, not the operation. Set before the first group is added.
  void set_interrupt(std::function<void()> interrupt) { interrupt_ = std::move(interrupt); }
  /// Owns progress until `work` is done (true) or `deadline` passes (false).
  bool drive(const Work& work, std::optional<Work::Clock::time_point> deadline, bool interruptible);
  /// The same in two steps, for a caller whose operation starts only once it owns progress: takes the role if nobody
  /// has or wants it, and then either drives (and gives it back) or gives it back. After drive_acquired() the work may
  /// not be done: the deadline has passed, somebody wants to visit, or it takes long.
  [[nodiscard]] bool try_acquire();
  void drive_acquired(const Work& work, std::optional<Work::Clock::time_point> deadline = std::nullopt);
  /// One pass, for a caller that has acquired the role and goes on with something else.
  void pass_and_release();
  void release();
  /// Some work became done: whoever waits for the role only to finish that work may go.
  void finished();
  /// Where callbacks of completed operations run.
  [[nodiscard]] CompletionThreads& completions() { return completions_; }
  /// Does the calling thread own progress? Others wait for it then.
  [[nodiscard]] bool mine() const { return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }
  /// The owner of progress asks: is it a caller that waits (true) or the progress engine's thread?
  [[nodiscard]] bool driven() const { return driven_.load(std::memory_order_relaxed); }
  /// What peers ring to wake this process.
  [[nodiscard]] const Doorbell& doorbell() const { return doorbell_; }
  /// True in a child of fork(): the threads are gone and nothing here may be touched.
  [[nodiscard]] bool forked() const { return !made_here_; }

 private:
  enum class Caller : std::uint8_t { driver, thread };
  enum class Wake : std::uint8_t { nothing, traffic, control };  // the most urgent that ended a sleep
  class Backoff;
  static constexpr Work::Clock::time_point kNever = Work::Clock::time_point::min();

  bool acquire(Caller caller, const Work* work, std::optional<Work::Clock::time_point> deadline);
  bool take_over();
  void own(Caller caller);
  void visit();
  bool pass();
  bool pass(unsigned active);
  void tend(bool all);
  void look_around();
  void make_room(std::uint32_t cpu);
  [[nodiscard]] bool others_compute() const;
  [[nodiscard]] bool any_busy() const;
  Wake sleep(Caller owner, std::chrono::milliseconds at_most);
  void nudge() const;
  void run_progress();
  void start_threads();

  const MadeHere made_here_;
  Doorbell doorbell_;    // rung by peers
  UniqueFd submit_;      // rung by threads of this process
  UniqueFd owner_poll_;  // epoll of a blocked owner: doorbell, submit, data, control
  UniqueFd idle_poll_;   // epoll of the idle thread: submit, control, the grace's timer
  Grace grace_;

  std::mutex mutex_;  // guards the role
  std::condition_variable role_;
  std::atomic<std::thread::id> owner_{};  // written with the mutex; nobody: the default
  std::atomic<int> waiting_{0};           // drivers that want the role
  std::atomic<int> visiting_{0};          // visitors that want it
  bool owned_ = false;
  std::atomic<bool> owner_asleep_{false};
  std::atomic<bool> stop_{false};

  std::vector<Steppable*> groups_;                                   // touched by the owner only, like all but the last
  std::vector<int> control_;                                         // the groups' control descriptors
  Work::Clock::time_point others_compute_until_ = kNever;            // others of this machine need our cores
  std::array<Work::Clock::time_point, kPriorities> moving_until_{};  // of each priority, counted only while several
  unsigned moving_ = 0;                                              // are in flight: these, a bit each
  unsigned spins_ = 256;                                             // how long a blocked owner spins before it yields
  unsigned yields_ = 128;                                            // and how often it yields before it sleeps
  unsigned idle_turns_ = 0;                                          // of all waits
  Relocation relocation_;
  bool holding_ = false;             // operations stand still that get their share back before a sleep could end
  bool shares_cpu_ = false;          // with a peer that is awake: while we spin, it does not come to what we wait for
  std::atomic<bool> driven_{false};  // by a caller, not by the thread
  std::atomic<bool> crowded_{false};

  CompletionThreads completions_;
  std::function<void()> interrupt_;

  std::once_flag threads_started_;
  std::unique_ptr<std::thread> progress_thread_;
};

}  // namespace syntony
