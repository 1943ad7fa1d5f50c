#include "core/runtime/work.hpp"

#include <utility>

#include "core/runtime/engine.hpp"

namespace syntony {

bool Work::wait(std::optional<std::chrono::milliseconds> timeout) {
  if (!done()) {
    const auto deadline = timeout ? std::optional(Clock::now() + *timeout) : std::nullopt;
    if (!engine_.drive(*this, deadline)) return false;
  }
  if (const std::exception_ptr failure = error()) std::rethrow_exception(failure);
  return true;
}

std::exception_ptr Work::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Work::on_done(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!done()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void Work::finish(std::exception_ptr error) {
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    callbacks = std::exchange(callbacks_, {});
    done_.store(true, std::memory_order_release);
  }
  for (std::function<void()>& callback : callbacks) engine_.complete_later(std::move(callback));
  engine_.finished();
}

}  // namespace syntony
