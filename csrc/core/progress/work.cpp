#include "core/progress/work.hpp"

#include <algorithm>
#include <utility>

#include "core/call.hpp"
#include "core/progress/progress_engine.hpp"

namespace syntony {

bool Work::wait(std::optional<std::chrono::milliseconds> timeout) {
  if (!done()) {
    const auto deadline = timeout ? std::optional(after(*timeout)) : std::nullopt;
    if (!engine_.drive(*this, deadline, true)) return false;
  }
  if (const std::exception_ptr failure = error()) std::rethrow_exception(failure);
  return true;
}

void Work::wait_to_the_end() {
  engine_.drive(*this, std::nullopt, false);
  if (const std::exception_ptr failure = error()) std::rethrow_exception(failure);
}

std::exception_ptr Work::error() const { return done() ? error_ : nullptr; }

void Work::on_done(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!done()) {
      callbacks_.push_back(std::move(callback));
      engine_.unattended();
      return;
    }
  }
  callback();
}

void Work::gather(std::span<const std::shared_ptr<Work>> parts, const std::shared_ptr<Work>& self) {
  parts_missing_ = parts.size();
  for (const std::shared_ptr<Work>& part : parts) part->whole_ = self;
}

void Work::finish(std::exception_ptr error) {
  const std::shared_ptr<Work> whole = std::move(whole_);
  const std::exception_ptr cause = error;
  record_.finished(error != nullptr, engine_.driven());
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    callbacks = std::exchange(callbacks_, {});
    done_.store(true, std::memory_order_release);
  }
  for (std::function<void()>& callback : callbacks) engine_.completions().later(std::move(callback));
  engine_.finished();
  if (whole && !whole->done() && (cause || --whole->parts_missing_ == 0)) whole->finish(cause);
}

bool Works::done() const {
  return std::ranges::all_of(all_, [](const std::shared_ptr<Work>& work) { return work->done(); });
}

std::exception_ptr Works::error() const {
  for (const std::shared_ptr<Work>& work : all_) {
    if (std::exception_ptr error = work->error()) return error;
  }
  return nullptr;
}

bool Works::wait(std::optional<std::chrono::milliseconds> timeout) {
  using std::chrono::milliseconds;
  const auto deadline = after(timeout.value_or(milliseconds(0)));
  return std::ranges::all_of(all_, [&](const std::shared_ptr<Work>& work) {
    if (!timeout) return work->wait();
    return work->wait(std::max(std::chrono::ceil<milliseconds>(deadline - Work::Clock::now()), milliseconds(0)));
  });
}

void Works::on_done(std::function<void()> callback) {
  auto missing = std::make_shared<std::atomic<std::size_t>>(all_.size() + 1);
  const auto arrived = [missing, callback = std::move(callback)] {
    if (missing->fetch_sub(1) == 1) callback();
  };
  for (const std::shared_ptr<Work>& work : all_) work->on_done(arrived);
  arrived();
}

}  // namespace syntony
