// The handle that torch returns for an operation in flight.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "bindings/core/group/process.hpp"
#include "core/progress/work.hpp"
#include "torch/buffers.hpp"
#include "torch/errors.hpp"
#include "torch/hooks.hpp"

namespace syntony::glue {

using Tensors = std::vector<at::Tensor>;
using CompletionHook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

/// The hook to call for every Work's end, and the number of calls still to come.
struct Completions {
  CompletionHook hook;
  std::atomic<int> pending{0};
};

/// Reports one end to the hook.
inline void report(Completions& completions, c10d::OpType type, std::uint64_t sequence,
                   std::chrono::steady_clock::time_point created, std::chrono::steady_clock::time_point ended) {
  try {
    completions.hook(std::make_shared<c10d::WorkInfo>(type, sequence, created, ended, ended - created));
  } catch (const std::exception& error) {
    TORCH_WARN("syntony: the hook on completions raised ", error.what());
  }
  if (completions.pending.fetch_sub(1) == 1) completions.pending.notify_all();
}

/// Dropping the last reference to a tensor may need the interpreter's lock. The owner of progress must never wait for
/// it, so it leaves the buffers to a completion thread.
inline std::shared_ptr<Buffers> shared_buffers(const std::shared_ptr<Process>& process) {
  return {new Buffers(), [process](Buffers* buffers) {
            if (process->engine().mine()) return process->engine().completions().later([buffers] { delete buffers; });
            delete buffers;
          }};
}

/// A number for a Work, unique in this process.
inline std::uint64_t next_key() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

/// What torch.profiler calls an operation: "syntony:all_reduce".
inline std::string profiled(const Hooks& hooks, const char* name) { return hooks.title + ":" + name; }

/// One or several operations of the runtime (a coalesced call has several) seen as one. It is done when all are done
/// and the staged outputs are filled; the first thread to ask fills them.
class SyntonyWork : public c10d::Work {
 public:
  SyntonyWork(std::shared_ptr<Process> process, std::shared_ptr<const Hooks> hooks, int rank, c10d::OpType type,
              const char* name, const Tensors& profiled_inputs)
      : c10d::Work(rank, type, at::hasCallbacks() ? profiled(*hooks, name).c_str() : nullptr,
                   at::hasCallbacks() ? std::optional(profiled_inputs) : std::nullopt),
        process_(std::move(process)),
        hooks_(std::move(hooks)),
        buffers_(shared_buffers(process_)) {}

  // While it is being set up:

  [[nodiscard]] const std::shared_ptr<Buffers>& buffers() const { return buffers_; }
  void add(std::shared_ptr<syntony::Work> part) { parts_.add(std::move(part)); }
  void add(const c10::intrusive_ptr<SyntonyWork>& member) {
    parts_.add(member->parts_);
    outputs_.insert(outputs_.end(), member->outputs_.begin(), member->outputs_.end());
    members_.push_back(member);
  }
  /// Everything has been started. `outputs` is the operation's result. The end is noticed immediately if `timed`, or if
  /// `completions` or hooks want to be told, and otherwise when somebody asks.
  void launched(const Tensors& outputs, bool timed, std::shared_ptr<Completions> completions, bool hooked) {
    outputs_.insert(outputs_.end(), outputs.begin(), outputs.end());
    if (!recordFunctionEndCallback_ && !timed && !completions && !hooked) return;
    if (completions) completions->pending.fetch_add(1);
    parts_.on_done([self = this_one(), completions = std::move(completions), hooked] {
      self->settle();
      if (completions) report(*completions, self->opType_, self->getSequencenumber(), self->created_, self->ended_);
      if (hooked && !self->parts_.error()) self->hooks_->success(self->getCompletionKey(), self->getDuration());
    });
  }

  // What torch asks:

  bool isCompleted() override {
    if (!parts_.done()) return false;
    settle();
    return true;
  }
  bool isSuccess() const override { return parts_.done() && !parts_.error(); }
  std::exception_ptr exception() const override { return parts_.done() ? torch_error(parts_.error()) : nullptr; }
  int sourceRank() const override { return parts_.front() == nullptr ? -1 : parts_.front()->source(); }
  Tensors result() override { return outputs_; }
  /// Drives the runtime until done. If `timeout` passes first, it throws, and the operation goes on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    const auto limit = timeout > kNoTimeout ? std::optional(timeout) : std::nullopt;
    const bool done = in_torch_terms([&] { return hooks_->watch([&] { return parts_.wait(limit); }); });
    TORCH_CHECK_WITH(DistBackendError, done, "syntony rank ", rank_, ": Timed out waiting ", timeout.count(),
                     " ms for ", c10d::opTypeToString(opType_), "; the operation itself goes on");
    settle();
    return true;
  }
  void synchronize() override { wait(); }
  /// A future of the list of output tensors, completed on a completion thread; its callbacks may wait for other
  /// futures.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const std::scoped_lock lock(mutex_);
    if (future_) return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    parts_.on_done([self = this_one(), future = future_, state = at::ThreadLocalState()] {
      const at::ThreadLocalStateGuard caller(state);
      self->settle();
      if (const std::exception_ptr error = self->exception()) {
        self->hooks_->failure();
        future->setError(error);
      } else {
        future->markCompleted(c10::IValue(self->outputs_));
      }
    });
    return future_;
  }
  /// Milliseconds from the call to completion.
  float getDuration() const override {
    const Clock::time_point ended = ended_;
    TORCH_CHECK(ended != Clock::time_point(), "syntony rank ", rank_, ": ", c10d::opTypeToString(opType_),
                " has no duration before somebody has waited for it or seen it completed");
    return std::chrono::duration<float, std::milli>(ended - created_).count();
  }
  uint64_t getSequencenumber() const override {
    return parts_.front() == nullptr ? 0 : parts_.front()->descriptor().sequence;
  }
  /// Overrides since torch 2.15: the number by which hooks know this Work, never reused.
  uint64_t getCompletionKey() const { return key_; }  // NOLINT(modernize-use-override)

 private:
  using Clock = std::chrono::steady_clock;

  c10::intrusive_ptr<SyntonyWork> this_one() {
    return c10::intrusive_ptr<SyntonyWork>::unsafe_reclaim_from_nonowning(this);
  }
  /// Fills the staged outputs and lets go of the tensors: the runtime may hold `buffers_` for some time after the end.
  void settle() {
    Buffers used;  // dropped last: that may need the interpreter's lock, for which nobody waits with `settling_`
    const std::scoped_lock lock(settling_);  // not std::call_once, which makes a system call each time
    if (settled_) return;
    ended_ = Clock::now();
    if (!parts_.error()) {
      buffers_->copy_back();
      used = std::move(*buffers_);
    }
    for (const auto& member : members_) member->settle();
    if (recordFunctionEndCallback_) recordFunctionEndCallback_();
    settled_ = true;
  }

  std::shared_ptr<Process> process_;  // first: outlives everything that runs on its progress engine
  std::shared_ptr<const Hooks> hooks_;
  std::shared_ptr<Buffers> buffers_;
  Works parts_;
  std::vector<c10::intrusive_ptr<SyntonyWork>> members_;
  Tensors outputs_;
  const Clock::time_point created_ = Clock::now();
  const std::uint64_t key_ = next_key();
  std::mutex settling_;
  bool settled_ = false;
  std::atomic<Clock::time_point> ended_{Clock::time_point()};
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace syntony::glue
