// The handle that torch gives out for an operation in flight.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "bindings/process.hpp"
#include "core/runtime/work.hpp"
#include "torch/buffers.hpp"
#include "torch/errors.hpp"

namespace syntony::glue {

/// One or several operations of the runtime (a coalesced call has several) seen as one. It is done when all are done
/// and the outputs that were staged are filled; whoever asks first fills them.
class SyntonyWork : public c10d::Work {
 public:
  /// `title` names the operation for torch.profiler ("syntony:all_reduce").
  SyntonyWork(std::shared_ptr<Process> process, int rank, c10d::OpType type, const char* title,
              const std::vector<at::Tensor>& profiled_inputs);

  // While it is made:

  [[nodiscard]] const std::shared_ptr<Buffers>& buffers() const { return buffers_; }
  void add(std::shared_ptr<syntony::Work> part) { parts_.add(std::move(part)); }
  void add(const c10::intrusive_ptr<SyntonyWork>& member);
  /// Everything is under way. `outputs` is the operation's result.
  void launched(std::vector<at::Tensor> outputs);

  // What torch asks:

  bool isCompleted() override;
  bool isSuccess() const override { return parts_.done() && !parts_.error(); }
  std::exception_ptr exception() const override { return parts_.done() ? torch_error(parts_.error()) : nullptr; }
  int sourceRank() const override { return parts_.front() == nullptr ? -1 : parts_.front()->source(); }
  std::vector<at::Tensor> result() override { return outputs_; }
  /// Drives the runtime until done. A `timeout` that passes first throws and leaves the operation going on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  /// A future of the list of output tensors, completed on the runtime's completion thread.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override {
    return parts_.front() == nullptr ? 0 : parts_.front()->descriptor().sequence;
  }

 private:
  void settle();

  std::shared_ptr<Process> process_;  // first: outlives all that runs on its Engine
  std::shared_ptr<Buffers> buffers_;
  Works parts_;
  std::vector<c10::intrusive_ptr<SyntonyWork>> members_;
  std::vector<at::Tensor> outputs_;
  std::once_flag settled_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace syntony::glue
