#include "core/progress/completion_threads.hpp"

#include <system_error>
#include <tuple>
#include <utility>

#include "core/recorder/recorder_dump.hpp"

namespace syntony {

CompletionThreads::~CompletionThreads() {
  std::vector<std::unique_ptr<std::thread>> threads;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    threads.swap(threads_);  // from now on running callbacks start no further thread
  }
  wake_.notify_all();
  for (const auto& thread : threads) thread->join();
}

void CompletionThreads::start() {
  const std::lock_guard lock(mutex_);
  on_demand_ = !trace_folder().empty();
  // The first look, which separates earlier requests from later ones, happens here because the thread may start much
  // later.
  if (on_demand_) dump_on_demand();
  threads_.push_back(std::make_unique<std::thread>([this] { run(); }));
}

void CompletionThreads::abandon() {
  for (auto& thread : threads_) std::ignore = thread.release();
  threads_.clear();
}

void CompletionThreads::later(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(callback), Clock::now()});
    keep_one_to_spare();
  }
  wake_.notify_one();
}

void CompletionThreads::drain() {
  std::unique_lock lock(mutex_);
  drained_.wait(lock, [this] { return queue_.empty() && running_ == 0; });
}

// Failing to start one more is not an error: the callback waits for the running ones, as with a single thread.
void CompletionThreads::keep_one_to_spare() {
  if (queue_.empty() || running_ < threads_.size() || threads_.empty() || stop_) return;
  try {
    threads_.push_back(std::make_unique<std::thread>([this] { run(); }));
  } catch (const std::system_error&) {
    return;
  }
}

bool CompletionThreads::may_take() const {
  return !queue_.empty() && (running_ == 0 || Clock::now() >= queue_.front().since + kPatience);
}

void CompletionThreads::wait(std::unique_lock<std::mutex>& lock) {
  if (!queue_.empty()) {
    wake_.wait_until(lock, queue_.front().since + kPatience);
  } else if (!on_demand_ || looking_) {
    wake_.wait(lock);
  } else if (Clock::now() < next_look_) {
    wake_.wait_until(lock, next_look_);
  } else {
    next_look_ = Clock::now() + kDemandInterval;
    looking_ = true;
    lock.unlock();
    sample_wires();
    dump_on_demand();
    lock.lock();
    looking_ = false;
  }
}

void CompletionThreads::run() {
  std::unique_lock lock(mutex_);
  while (!stop_ || !queue_.empty()) {
    if (!may_take()) {
      wait(lock);
      continue;
    }
    std::function<void()> callback = std::move(queue_.front().callback);
    queue_.pop_front();
    ++running_;
    keep_one_to_spare();
    lock.unlock();
    callback();
    callback = nullptr;  // destroying what it captured may call later() itself
    lock.lock();
    if (--running_ == 0 && queue_.empty()) drained_.notify_all();
  }
}

}  // namespace syntony
