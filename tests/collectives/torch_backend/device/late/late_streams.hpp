// Streams that delay their work, each on a thread: code that fails to wait for an event sees stale data.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace late {

/// How long streams delay each task: the default stream, and all others.
inline std::atomic<int> lateness_us{1000}, side_lateness_us{1000};

class Stream {
 public:
  explicit Stream(const std::atomic<int>& lateness) : lateness_(lateness) {}
  void put(std::function<void()> task) {
    const std::scoped_lock lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { live(); });
    tasks_.push_back(std::move(task));
    ++put_;
    changed_.notify_all();
  }
  [[nodiscard]] bool idle() {
    const std::scoped_lock lock(mutex_);
    return done_ == put_;
  }
  void synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&, until = put_] { return done_ >= until; });
  }

 private:
  void live() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !tasks_.empty(); });
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(lateness_));
      task();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  const std::atomic<int>& lateness_;
  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::uint64_t put_ = 0, done_ = 0;
  std::thread thread_;
};

/// Stream 0 is the default one. They live as long as the process.
inline constexpr std::int64_t kStreams = 9;
inline Stream& stream(std::int64_t id) {
  static auto* const streams = new std::vector<std::unique_ptr<Stream>>([] {
    std::vector<std::unique_ptr<Stream>> made;
    for (std::int64_t i = 0; i < kStreams; ++i) {
      made.push_back(std::make_unique<Stream>(i == 0 ? lateness_us : side_lateness_us));
    }
    return made;
  }());
  return *streams->at(static_cast<std::size_t>(id));
}

/// The calling thread's current stream.
inline thread_local std::int64_t current_stream = 0;
inline std::int64_t next_side_stream() {
  static std::atomic<std::int64_t> given{0};
  return 1 + given++ % (kStreams - 1);
}

/// Can be recorded any number of times; a waiter waits for the latest recording at the time of its call.
class Event {
 public:
  void record(Stream& in) {
    const std::shared_ptr<State> state = state_;
    std::uint64_t version = 0;
    {
      const std::scoped_lock lock(state->mutex);
      version = ++state->recorded;
    }
    in.put([state, version] {
      const std::scoped_lock lock(state->mutex);
      state->passed = std::max(state->passed, version);
      state->changed.notify_all();
    });
  }
  void block(Stream& in) const {
    in.put([wait = waiting()] { wait(); });
  }
  void synchronize() const { waiting()(); }
  [[nodiscard]] bool query() const {
    const std::scoped_lock lock(state_->mutex);
    return state_->passed == state_->recorded;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t recorded = 0, passed = 0;
  };
  [[nodiscard]] std::function<void()> waiting() const {
    const std::scoped_lock lock(state_->mutex);
    return [state = state_, version = state_->recorded] {
      std::unique_lock until(state->mutex);
      state->changed.wait(until, [&] { return state->passed >= version; });
    };
  }

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace late
