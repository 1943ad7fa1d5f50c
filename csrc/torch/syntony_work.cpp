#include "torch/syntony_work.hpp"

#include <ATen/ThreadLocalState.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>
#include <Python.h>

#include "torch/errors.hpp"

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
  parts_.insert(parts_.end(), member->parts_.begin(), member->parts_.end());
  outputs_.insert(outputs_.end(), member->outputs_.begin(), member->outputs_.end());
  members_.push_back(member);
}

void SyntonyWork::launched(std::vector<at::Tensor> outputs) {
  outputs_.insert(outputs_.end(), outputs.begin(), outputs.end());
  if (recordFunctionEndCallback_) {
    const auto self = c10::intrusive_ptr<SyntonyWork>::unsafe_reclaim_from_nonowning(this);
    when_done([self] { self->settle(); });
  }
}

bool SyntonyWork::parts_done() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->done(); });
}

std::exception_ptr SyntonyWork::first_error() const {
  for (const auto& part : parts_) {
    if (part->error()) return torch_error(part->error());
  }
  return nullptr;
}

void SyntonyWork::settle() {
  std::call_once(settled_, [this] {
    if (!first_error()) buffers_->copy_back();
    for (const auto& member : members_) member->settle();
    if (recordFunctionEndCallback_) recordFunctionEndCallback_();
  });
}

bool SyntonyWork::isCompleted() {
  if (!parts_done()) return false;
  settle();
  return true;
}

bool SyntonyWork::isSuccess() const { return parts_done() && !first_error(); }

std::exception_ptr SyntonyWork::exception() const { return parts_done() ? first_error() : nullptr; }

int SyntonyWork::sourceRank() const { return parts_.empty() ? -1 : parts_.front()->source(); }

uint64_t SyntonyWork::getSequencenumber() const { return parts_.empty() ? 0 : parts_.front()->descriptor().sequence; }

bool SyntonyWork::wait(std::chrono::milliseconds timeout) {
  using Clock = syntony::Work::Clock;
  const bool bounded = timeout > kNoTimeout;
  const auto deadline = Clock::now() + timeout;
  for (const auto& part : parts_) {
    const bool done = in_torch_terms([&] {
      if (!bounded) return part->wait();
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      return part->wait(std::max(left, std::chrono::milliseconds(0)));
    });
    TORCH_CHECK_WITH(DistBackendError, done, "syntony rank ", rank_, ": Timed out waiting ", timeout.count(),
                     " ms for ", c10d::opTypeToString(opType_), "; the operation itself goes on");
  }
  settle();
  return true;
}

void SyntonyWork::when_done(std::function<void()> then) {
  auto missing = std::make_shared<std::atomic<std::size_t>>(parts_.size() + 1);
  const auto arrived = [missing, then = std::move(then)] {
    if (missing->fetch_sub(1) == 1) then();
  };
  for (const auto& part : parts_) part->on_done(arrived);
  arrived();
}

c10::intrusive_ptr<c10::ivalue::Future> SyntonyWork::getFuture() {
  const std::scoped_lock lock(mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  const auto self = c10::intrusive_ptr<SyntonyWork>::unsafe_reclaim_from_nonowning(this);
  when_done([self, future = future_, state = at::ThreadLocalState()] {
    const at::ThreadLocalStateGuard caller(state);
    self->settle();
    if (const std::exception_ptr error = self->first_error()) {
      future->setError(error);
    } else {
      future->markCompleted(c10::IValue(self->outputs_));
    }
  });
  return future_;
}

}  // namespace syntony::glue
