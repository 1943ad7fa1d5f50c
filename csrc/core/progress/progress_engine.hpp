// Who makes progress, and how everybody else waits.
//
// One progress engine per process serves all groups. At any time at most one thread owns progress: the progress
// engine's own thread, or a caller that waits for its operation and so drives everything itself (no hand-over on the
// latency path):
//
//      idle ---- async submit ----> nobody, for a grace (grace.hpp); then, or immediately if nobody will wait:
//                                   progress engine's thread: pass, pass, .., sleep in epoll, pass ..
//                                        | a caller wants to wait: the thread hands the role over
//      sync call / Work::wait ----> caller: pass, pass .. until its work is done, then gives the role back
//
// Visitors, which only add or remove a group, go first: a driver may wait long for ranks that need that group. A pass
// gives every group a non-blocking turn, priority by priority. Urgent operations of any group come before less urgent
// ones of all groups, which pause while the urgent ones move and go on with little while those wait (Share,
// priority.hpp). An owner that finds nothing to do spins, then yields, then sleeps in epoll on the doorbell (which
// peers ring), the sockets and the pidfds of local peers, so a death wakes it. Completion callbacks (Python, futures)
// run on threads of their own (completion_threads.hpp).
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
#include "core/process/others_load.hpp"
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
  /// Precedes the priorities' turns: takes what was launched and what has arrived. True if anything moved.
  virtual bool begin() = 0;
  /// One non-blocking turn of an active priority; true if anything moved.
  virtual bool step(Priority priority, Share share) = 0;
  /// How long an operation in flight may pause between its peers' bytes before it counts as stopped.
  [[nodiscard]] virtual Work::Clock::duration breath() const = 0;
  /// Which priorities have operations in flight, as of the last begin() or step(): one bit each. For the owner of
  /// progress.
  [[nodiscard]] unsigned active() const { return active_; }
  [[nodiscard]] bool active(Priority priority) const { return (active_ >> index_of(priority) & 1U) != 0; }
  /// True if operations are in flight. Any thread may ask.
  [[nodiscard]] virtual bool busy() const = 0;
  /// The slow path, every few milliseconds while blocked and when a control descriptor fires: deadlines, deaths,
  /// aborts.
  virtual void tend() = 0;
  /// Called before (true) and after (false) the owner sleeps, when peers must ring the doorbell.
  virtual void sleeping(bool asleep) = 0;
  /// The owner waits on this CPU. True if an awake peer does so, too.
  virtual bool meets_on(std::uint32_t cpu) = 0;
  /// The CPU of `allowed` to which the owner should move from `cpu`, if any.
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
  /// Once it returns, no thread is inside `steppable`. The descriptors must still be open.
  void remove(Steppable& steppable, std::span<const int> data, std::span<const int> control);

  /// Ranks of a group share processors. From now on nobody spins, because the awaited ones need the processor.
  void crowd();
  /// Something asynchronous was queued. Whoever waits for it drives it; if nobody does soon, the progress engine's
  /// thread takes over.
  void submitted();
  /// Somebody will be notified of its end without waiting, or peers wait for it: the thread takes it up now.
  void unattended();
  /// Called by a waiting thread every 100 ms, without owning progress: in Python it handles signals. What it throws
  /// ends the wait, not the operation. Set before the first group is added.
  void set_interrupt(std::function<void()> interrupt) { interrupt_ = std::move(interrupt); }
  /// Owns progress until `work` is done (true) or `deadline` passes (false).
  bool drive(const Work& work, std::optional<Work::Clock::time_point> deadline, bool interruptible);
  /// The same in two steps, for a caller whose operation starts only once it owns progress. Takes the role if nobody
  /// has or wants it; the caller then either drives (which gives it back) or gives it back. After drive_acquired() the
  /// work may not be done: the deadline has passed, somebody wants to visit, or it takes long.
  [[nodiscard]] bool try_acquire();
  void drive_acquired(const Work& work, std::optional<Work::Clock::time_point> deadline = std::nullopt);
  /// One pass, for a caller that has acquired the role and goes on with something else.
  void pass_and_release();
  void release();
  /// Some work is done: a thread that waits for the role only to finish that work may go.
  void finished();
  /// Where callbacks of completed operations run.
  [[nodiscard]] CompletionThreads& completions() { return completions_; }
  /// True if the calling thread owns progress. Others then wait for it.
  [[nodiscard]] bool mine() const { return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }
  /// Asked by the owner of progress: is it a waiting caller (true) or the progress engine's thread?
  [[nodiscard]] bool driven() const { return driven_.load(std::memory_order_relaxed); }
  /// What peers ring to wake this process.
  [[nodiscard]] const Doorbell& doorbell() const { return doorbell_; }
  /// True in a child of fork(): the threads are gone and nothing here may be touched.
  [[nodiscard]] bool forked() const { return !made_here_; }

 private:
  enum class Caller : std::uint8_t { driver, thread };
  enum class Wake : std::uint8_t { nothing, traffic, control };  // the most urgent cause that ended a sleep
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
  std::atomic<int> visiting_{0};          // visitors that want the role
  bool owned_ = false;
  std::atomic<bool> owner_asleep_{false};
  std::atomic<bool> stop_{false};

  std::vector<Steppable*> groups_;                                   // touched by the owner only, like all but the last
  std::vector<int> control_;                                         // the groups' control descriptors
  OthersLoad others_load_;                                           // other programs need our cores
  std::array<Work::Clock::time_point, kPriorities> moving_until_{};  // per priority, tracked only while several
  unsigned moving_ = 0;                                              // are in flight: these, one bit each
  unsigned spins_ = 256;                                             // how long a blocked owner spins before it yields
  unsigned yields_ = 128;                                            // and how often it yields before it sleeps
  unsigned idle_turns_ = 0;                                          // of all waits
  Relocation relocation_;
  bool holding_ = false;     // some paused operations get their share back before a sleep could end
  bool shares_cpu_ = false;  // with an awake peer, which cannot send what we wait for while we spin
  unsigned company_ = 0;     // yields to be made because somebody else, maybe a peer on another host, ran in one
  std::atomic<bool> driven_{false};  // by a caller, not by the thread
  std::atomic<bool> crowded_{false};

  CompletionThreads completions_;
  std::function<void()> interrupt_;

  std::once_flag threads_started_;
  std::unique_ptr<std::thread> progress_thread_;
};

}  // namespace syntony
