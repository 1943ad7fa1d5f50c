// The part of the runtime that an operating system process owns: one progress engine and the groups over it. Both front
// ends, the Python bindings and the torch backend, share one.
//
// fork:  a child inherits the memory but not the progress engine's threads, and its parent's peers do not know it.
//        In a child `forked()` is true and nothing may be used; a child that wants groups makes its own Process.
// exit:  `close()` ends the groups while callbacks can still run, before the interpreter tears itself down.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "bindings/core/signals.hpp"
#include "core/group/communicator.hpp"
#include "core/progress/progress_engine.hpp"

namespace syntony {

class Process {
 public:
  Process() : engine_(std::make_shared<ProgressEngine>()) { engine_->set_interrupt(run_signal_handlers); }

  [[nodiscard]] bool forked() const { return engine_->forked(); }
  [[nodiscard]] ProgressEngine& engine() const { return *engine_; }

  /// Makes a group's Communicator. Collective: returns once all ranks have joined.
  std::shared_ptr<Communicator> join(Bootstrap& bootstrap, CommunicatorOptions options) {
    return adopt(std::make_shared<Communicator>(engine_, bootstrap, std::move(options)));
  }

  /// Adds a group derived from another one (or null) to those that close() ends.
  std::shared_ptr<Communicator> adopt(std::shared_ptr<Communicator> group) {
    const std::scoped_lock lock(mutex_);
    std::erase_if(groups_, [](const std::weak_ptr<Communicator>& old) { return old.expired(); });
    groups_.push_back(group);
    joined_ = true;
    return group;
  }

  /// Ends all groups and waits until their callbacks have run. Call without the interpreter's lock.
  void close() {
    if (forked()) return;
    std::vector<std::weak_ptr<Communicator>> groups;
    {
      const std::scoped_lock lock(mutex_);
      groups.swap(groups_);
      if (!joined_) return;  // no group was made, so there are no threads
    }
    for (const auto& candidate : groups) {
      if (const auto group = candidate.lock()) group->shutdown();
    }
    engine_->completions().drain();
  }

 private:
  std::shared_ptr<ProgressEngine> engine_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Communicator>> groups_;
  bool joined_ = false;
};

/// Names of the capsules in which the two extension modules pass each other these values.
inline constexpr const char* kProcessCapsule = "syntony.Process";            // std::shared_ptr<Process>*
inline constexpr const char* kCommunicatorCapsule = "syntony.Communicator";  // std::shared_ptr<Communicator>*

}  // namespace syntony
