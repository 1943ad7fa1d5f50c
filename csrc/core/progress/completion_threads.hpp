// Where completion callbacks run: Python's and those of torch's futures. The owner of progress never runs one itself,
// because a callback may need the interpreter's lock or take long.
//
// One thread runs the callbacks in the order in which their operations ended. A callback may itself wait for a later
// operation's future, whose callback is behind it in the queue (DDP's PowerSGD hook: all_reduce, then, in its future's
// callback, the next all_reduce and a wait for its future). So a callback that has waited behind others for kPatience
// is moved to a further thread: there are as many threads as callbacks that wait for each other, plus one.
//
//      later() --> [ c | b ] --> thread 1: a, which waits for c's effect ...
//                      `--------> thread 2: b, c
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace syntony {

class CompletionThreads {
 public:
  CompletionThreads() = default;
  /// Runs what is queued and ends the threads.
  ~CompletionThreads();
  CompletionThreads(const CompletionThreads&) = delete;
  CompletionThreads& operator=(const CompletionThreads&) = delete;

  /// Starts the first thread, which runs what was queued before.
  void start();
  /// Queues `callback`, which must not throw. Any thread may call it.
  void later(std::function<void()> callback);
  /// Returns when nothing is queued and nothing runs. Not to be called from callbacks.
  void drain();
  /// For a child of fork(), where the threads do not exist: the destructor joins nothing.
  void abandon();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPatience{1};

  struct Queued {
    std::function<void()> callback;
    Clock::time_point since;
  };

  void run();
  [[nodiscard]] bool may_take() const;
  void wait(std::unique_lock<std::mutex>& lock);
  void keep_one_to_spare();

  std::mutex mutex_;  // guards everything below
  std::condition_variable wake_, drained_;
  std::deque<Queued> queue_;
  std::vector<std::unique_ptr<std::thread>> threads_;
  std::size_t running_ = 0;  // threads inside a callback
  bool on_demand_ = false;   // dumps may be requested in the trace folder: an idle thread watches it
  bool looking_ = false;     // a thread is watching now
  Clock::time_point next_look_;
  bool stop_ = false;
};

}  // namespace syntony
