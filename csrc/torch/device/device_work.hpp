// The handle that torch returns for an operation on device tensors.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "torch/device/stream_future.hpp"
#include "torch/syntony_work.hpp"

namespace syntony::glue {

/// One or several operations seen as one. wait() makes the *current stream* wait; the host is blocked only until the
/// device's streams know of the operation's end (stream_future.hpp).
class DeviceWork : public c10d::Work {
 public:
  DeviceWork(std::shared_ptr<Process> process, std::shared_ptr<const Hooks> hooks, int rank, c10d::OpType type,
             const char* name, const Tensors& profiled_inputs, const c10::Device& device)
      : c10d::Work(rank, type, at::hasCallbacks() ? profiled(*hooks, name).c_str() : nullptr,
                   at::hasCallbacks() ? std::optional(profiled_inputs) : std::nullopt),
        process_(std::move(process)),
        hooks_(std::move(hooks)),
        buffers_(shared_buffers(process_)),
        device_(device) {}

  // While it is being set up:

  [[nodiscard]] const std::shared_ptr<Buffers>& buffers() const { return buffers_; }
  [[nodiscard]] const c10::Device& device() const { return device_; }
  void add(std::shared_ptr<StreamFuture> part) { parts_.push_back(std::move(part)); }
  void add(const c10::intrusive_ptr<DeviceWork>& member) {
    parts_.insert(parts_.end(), member->parts_.begin(), member->parts_.end());
    outputs_.insert(outputs_.end(), member->outputs_.begin(), member->outputs_.end());
  }
  /// Everything has been started. `outputs` is the operation's result. Completion is reported once the device's streams
  /// know of it, which is as far as the host follows.
  void launched(const Tensors& outputs, bool /*timed*/, std::shared_ptr<Completions> completions, bool hooked) {
    outputs_.insert(outputs_.end(), outputs.begin(), outputs.end());
    buffers_.reset();  // the thread that moves them holds them
    if (!recordFunctionEndCallback_ && !completions && !hooked) return;
    if (completions) completions->pending.fetch_add(1);
    when_queued([self = this_one(), completions = std::move(completions), hooked] {
      if (self->recordFunctionEndCallback_) self->recordFunctionEndCallback_();
      if (completions) report(*completions, self->opType_, 0, self->created_, Clock::now());
      if (hooked && self->isSuccess()) self->hooks_->success(self->getCompletionKey(), std::nullopt);
    });
  }

  // What torch asks:

  bool isCompleted() override {
    return std::ranges::all_of(parts_, [](const auto& part) { return part->done(); });
  }
  bool isSuccess() const override { return !exception(); }
  std::exception_ptr exception() const override {
    for (const auto& part : parts_) {
      if (const std::exception_ptr error = part->error()) return torch_error(error);
    }
    return nullptr;
  }
  int sourceRank() const override { return parts_.empty() ? -1 : parts_.front()->source(); }
  Tensors result() override { return outputs_; }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    const auto limit = timeout > kNoTimeout ? std::optional(timeout) : std::nullopt;
    for (const auto& part : parts_) {
      const bool queued = in_torch_terms([&] { return hooks_->watch([&] { return part->wait(limit); }); });
      TORCH_CHECK_WITH(DistBackendError, queued, "syntony rank ", rank_, ": Timed out waiting ", timeout.count(),
                       " ms for ", c10d::opTypeToString(opType_), "; the operation itself goes on");
    }
    const c10::Stream stream = current_stream(device_);
    for (const auto& part : parts_) part->precede(stream);
    return true;
  }
  void synchronize() override { wait(); }
  /// As for any torch future with a device: the stream of the thread that waits for it waits.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const std::scoped_lock lock(mutex_);
    if (future_) return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       std::vector<c10::Device>{device_});
    when_queued([self = this_one(), future = future_, state = at::ThreadLocalState()] {
      const at::ThreadLocalStateGuard caller(state);
      if (const std::exception_ptr error = self->exception()) {
        self->hooks_->failure();
        return future->setError(error);
      }
      const c10::Stream stream = side_stream(self->device_);
      const c10::StreamGuard guard(stream);  // whose state the future records
      for (const auto& part : self->parts_) part->precede(stream);
      future->markCompleted(c10::IValue(self->outputs_));
    });
    return future_;
  }
  /// As in SyntonyWork.
  uint64_t getCompletionKey() const { return key_; }  // NOLINT(modernize-use-override)

 private:
  using Clock = std::chrono::steady_clock;

  c10::intrusive_ptr<DeviceWork> this_one() {
    return c10::intrusive_ptr<DeviceWork>::unsafe_reclaim_from_nonowning(this);
  }
  /// Runs on a completion thread, which may wait for the interpreter.
  void when_queued(std::function<void()> callback) {
    const auto left = std::make_shared<std::atomic<std::size_t>>(parts_.size() + 1);
    const auto one_less = [left, process = process_, callback = std::move(callback)] {
      if (left->fetch_sub(1) == 1) process->engine().completions().later(callback);
    };
    for (const auto& part : parts_) part->on_settled(one_less);
    one_less();
  }

  std::shared_ptr<Process> process_;
  std::shared_ptr<const Hooks> hooks_;
  std::shared_ptr<Buffers> buffers_;
  c10::Device device_;
  std::vector<std::shared_ptr<StreamFuture>> parts_;
  Tensors outputs_;
  const Clock::time_point created_ = Clock::now();
  const std::uint64_t key_ = next_key();
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace syntony::glue
