// How far an operation on device tensors has come.
//
//    in flight ──▶ queued: its end is an event in a stream of the device      streams wait for it, hosts need not
//              ╰──▶ failed
//
// A stream can wait for an event only once it has been recorded, so hosts wait until then, and no longer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "torch/device/streams.hpp"

namespace syntony::glue {

/// Thread-safe.
class StreamFuture {
 public:
  /// `check` throws if something has happened to an operation that is queued.
  explicit StreamFuture(std::function<void()> check = nullptr) : check_(std::move(check)) {}

  // Called once, by the thread that carries it out:

  /// `source`: for a message, the rank it came from.
  void queued(c10::Event end, int source = -1) {
    settle([&] {
      end_.emplace(std::move(end));
      source_ = source;
    });
  }
  void failed(std::exception_ptr error) {
    settle([&] { error_ = std::move(error); });
  }

  // For users:

  /// Blocks the calling thread until queued (true) or `limit` has passed (false); rethrows a failure.
  bool wait(std::optional<std::chrono::milliseconds> limit) {
    std::unique_lock lock(mutex_);
    const auto is_settled = [&] { return settled(); };
    if (!limit) changed_.wait(lock, is_settled);
    if (limit && !changed_.wait_for(lock, *limit, is_settled)) return false;
    if (error_) std::rethrow_exception(error_);
    lock.unlock();
    if (check_) check_();
    return true;
  }
  /// What is put into `stream` from here on runs after a queued operation.
  void precede(const c10::Stream& stream) const {
    const std::scoped_lock lock(mutex_);
    if (end_) end_->block(stream);
  }
  /// Completed, also on the device, or failed.
  [[nodiscard]] bool done() const {
    const std::scoped_lock lock(mutex_);
    return error_ || (end_ && end_->query());
  }
  [[nodiscard]] std::exception_ptr error() const {
    {
      const std::scoped_lock lock(mutex_);
      if (error_ || !settled() || !check_) return error_;
    }
    try {
      check_();
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }
  [[nodiscard]] int source() const {
    const std::scoped_lock lock(mutex_);
    return source_;
  }
  /// Runs `callback` once it is queued or has failed: immediately, or on the thread that carries it out, which must not
  /// be held up.
  void on_settled(std::function<void()> callback) {
    {
      const std::scoped_lock lock(mutex_);
      if (!settled()) {
        callbacks_.push_back(std::move(callback));
        return;
      }
    }
    callback();
  }

 private:
  [[nodiscard]] bool settled() const { return end_.has_value() || error_; }
  template <typename Change>
  void settle(const Change& change) {
    std::vector<std::function<void()>> callbacks;
    {
      const std::scoped_lock lock(mutex_);
      change();
      callbacks.swap(callbacks_);
    }
    changed_.notify_all();
    for (const auto& callback : callbacks) callback();
  }

  const std::function<void()> check_;
  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::optional<c10::Event> end_;
  std::exception_ptr error_;
  int source_ = -1;
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace syntony::glue
