// The handle of an operation in flight.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/control.hpp"
#include "core/recorder/recorder.hpp"

namespace syntony {

class ProgressEngine;

/// Made by Communicator; shared by the caller and the progress engine. Thread-safe.
class Work {
 public:
  using Clock = std::chrono::steady_clock;

  Work(ProgressEngine& engine, const Descriptor& descriptor, Recorder::Ticket record = {})
      : engine_(engine), descriptor_(descriptor), record_(record) {}
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work() = default;

  [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
  /// Drives the progress engine until the operation is done (the waiting thread becomes the owner of progress), then
  /// rethrows the operation's error, if any. Returns false if the timeout passed first; the operation goes on, as it
  /// does when a signal handler throws (ProgressEngine::set_interrupt).
  bool wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  /// The same, ignoring signals.
  void wait_to_the_end();
  /// The error, or nullptr. Known once done().
  [[nodiscard]] std::exception_ptr error() const;
  /// Runs `callback` once, when done: immediately if already done, else on a completion thread
  /// (completion_threads.hpp), never on the thread that other ranks wait for.
  void on_done(std::function<void()> callback);
  /// Point-to-point: the rank the message came from (receive from any), else -1.
  [[nodiscard]] int source() const { return source_.load(std::memory_order_acquire); }
  [[nodiscard]] const Descriptor& descriptor() const { return descriptor_; }

 private:
  friend class ProgressEngine;
  friend class Group;
  friend class PointToPoint;
  /// Makes this one complete when all `parts` have, before the owner of progress knows any of them.
  void gather(std::span<const std::shared_ptr<Work>> parts, const std::shared_ptr<Work>& self);
  /// Called once, by the owner of progress. Hands the callbacks to the completion threads.
  void finish(std::exception_ptr error);
  /// Reuses this for another operation. Only for a sole owner.
  void reopen(const Descriptor& descriptor, Recorder::Ticket record) {
    descriptor_ = descriptor;
    record_ = record;
    done_.store(false, std::memory_order_relaxed);
  }
  [[nodiscard]] const Recorder::Ticket& record() const { return record_; }

  ProgressEngine& engine_;
  Descriptor descriptor_;
  Recorder::Ticket record_;        // its Recorder outlives every Work that is not done
  std::shared_ptr<Work> whole_;    // the operation that this one is a part of
  std::size_t parts_missing_ = 0;  // of this operation; counted by the owner of progress
  std::atomic<bool> done_{false};
  std::atomic<int> source_{-1};
  std::exception_ptr error_;  // written before done_, then constant
  std::mutex mutex_;          // guards the next
  std::vector<std::function<void()>> callbacks_;
};

/// Several operations seen as one: a coalesced call.
class Works {
 public:
  /// Null is none.
  void add(std::shared_ptr<Work> work) {
    if (work) all_.push_back(std::move(work));
  }
  void add(const Works& others) { all_.insert(all_.end(), others.all_.begin(), others.all_.end()); }
  [[nodiscard]] bool done() const;
  /// The first one's that failed.
  [[nodiscard]] std::exception_ptr error() const;
  /// As Work's.
  bool wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  void on_done(std::function<void()> callback);
  /// The first, or null.
  [[nodiscard]] const Work* front() const { return all_.empty() ? nullptr : all_.front().get(); }

 private:
  std::vector<std::shared_ptr<Work>> all_;
};

}  // namespace syntony
