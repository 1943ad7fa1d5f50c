#include "torch/syntony_work.hpp"

#include <ATen/ThreadLocalState.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>
#include <Python.h>

namespace syntony::glue {
namespace {

/// The last reference to a tensor may need the interpreter's lock. The thread that makes progress must never wait for
/// it, so there the buffers are handed to the completion thread.
void release(Engine& engine, Buffers* buffers) {
  if (PyGILState_Check() == 1) {
    delete buffers;
  } else {
    engine.complete_later([buffers] { delete buffers; });
  }
}

}  // namespace

SyntonyWork::SyntonyWork(std::shared_ptr<Process> process, int rank, c10d::OpType type, const char* title,
                         const std::vector<at::Tensor>& profiled_inputs)
    : c10d::Work(rank, type, at::hasCallbacks() ? title : nullptr, profiled_inputs),
      process_(std::move(process)),
      buffers_(new Buffers(), [engine = &process_->engine()](Buffers* buffers) { release(*engine, buffers); }) {}

void SyntonyWork::add(const c10::intrusive_ptr<SyntonyWork>& member) {
  parts_.add(member->parts_);
  outputs_.insert(outputs_.end(), member->outputs_.begin(), member->outputs_.end());
  members_.push_back(member);
}

void SyntonyWork::launched(std::vector<at::Tensor> outputs) {
  outputs_.insert(outputs_.end(), outputs.begin(), outputs.end());
  if (recordFunctionEndCallback_) {
    const auto self = c10::intrusive_ptr<SyntonyWork>::unsafe_reclaim_from_nonowning(this);
    parts_.on_done([self] { self->settle(); });
  }
}

void SyntonyWork::settle() {
  std::call_once(settled_, [this] {
    if (!parts_.error()) buffers_->copy_back();
    for (const auto& member : members_) member->settle();
    if (recordFunctionEndCallback_) recordFunctionEndCallback_();
  });
}

bool SyntonyWork::isCompleted() {
  if (!parts_.done()) return false;
  settle();
  return true;
}

bool SyntonyWork::wait(std::chrono::milliseconds timeout) {
  const auto limit = timeout > kNoTimeout ? std::optional(timeout) : std::nullopt;
  const bool done = in_torch_terms([&] { return parts_.wait(limit); });
  TORCH_CHECK_WITH(DistBackendError, done, "syntony rank ", rank_, ": Timed out waiting ", timeout.count(), " ms for ",
                   c10d::opTypeToString(opType_), "; the operation itself goes on");
  settle();
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> SyntonyWork::getFuture() {
  const std::scoped_lock lock(mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  const auto self = c10::intrusive_ptr<SyntonyWork>::unsafe_reclaim_from_nonowning(this);
  parts_.on_done([self, future = future_, state = at::ThreadLocalState()] {
    const at::ThreadLocalStateGuard caller(state);
    self->settle();
    if (const std::exception_ptr error = self->exception()) {
      future->setError(error);
    } else {
      future->markCompleted(c10::IValue(self->outputs_));
    }
  });
  return future_;
}

}  // namespace syntony::glue
