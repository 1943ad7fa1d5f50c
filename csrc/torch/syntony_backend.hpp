// torch.distributed's backend over a Communicator: it turns tensors into Blocks and Works into torch's Works. Moving
// the bytes and handling failures is left to the Communicator.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "bindings/core/group/process.hpp"
#include "torch/device/device_work.hpp"
#include "torch/device/on_device.hpp"
#include "torch/hooks.hpp"
#include "torch/syntony_work.hpp"

namespace syntony::glue {

using c10d::AllgatherOptions, c10d::AllreduceCoalescedOptions, c10d::AllreduceOptions, c10d::AllToAllOptions;
using c10d::BarrierOptions, c10d::BroadcastOptions, c10d::GatherOptions, c10d::OpType, c10d::ReduceOptions;
using c10d::ReduceScatterOptions, c10d::ScatterOptions;

using Lists = std::vector<Tensors>;
using Rows = std::vector<std::int64_t>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using OptionsPtr = c10::intrusive_ptr<c10d::Backend::Options>;

class SyntonyBackend : public c10d::Backend {
 public:
  struct Options : c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds limit) : c10d::Backend::Options("syntony", limit) {}
    std::optional<std::string> priority;  // default of the group's calls: low, normal, high
    /// Overrides since torch 2.15, where groups derived from this one get options of their own.
    c10::intrusive_ptr<c10d::Backend::Options> clone() const {  // NOLINT(modernize-use-override)
      return c10::make_intrusive<Options>(*this);
    }
  };

  /// How a group is re-formed (torch's reconfigure): the handle by which this rank is known, and how the ranks that
  /// pass the same `key` meet.
  struct Former {
    std::string handle;
    std::function<std::shared_ptr<Communicator>(const std::string& key, std::size_t rank, std::size_t size,
                                                std::chrono::milliseconds timeout)>
        form;
  };

  SyntonyBackend(std::shared_ptr<Process> process, std::shared_ptr<Communicator> communicator,
                 c10::intrusive_ptr<Options> options)
      : c10d::Backend(static_cast<int>(communicator->rank()), static_cast<int>(communicator->size())),
        process_(std::move(process)),
        communicator_(std::move(communicator)),
        options_(std::move(options)) {
    init();
  }
  /// A group without members until reconfigure() names them; until then its rank and size are -1.
  SyntonyBackend(std::shared_ptr<Process> process, Former former, c10::intrusive_ptr<Options> options)
      : c10d::Backend(-1, -1), process_(std::move(process)), options_(std::move(options)), former_(std::move(former)) {
    init();
  }

  [[nodiscard]] Communicator& communicator() const {
    TORCH_CHECK(!process_->forked(), "syntony rank ", rank_,
                ": this process was forked from the one that made the group; a child must make its own");
    TORCH_CHECK(communicator_, "syntony: this group has no members yet: reconfigure() it first");
    return *communicator_;
  }
  /// For Python, which wraps it in a Communicator.
  [[nodiscard]] const std::shared_ptr<Communicator>& shared() const {
    (void)communicator();
    return communicator_;
  }
  [[nodiscard]] const std::shared_ptr<Process>& process() const { return process_; }
  [[nodiscard]] std::size_t self() const { return static_cast<std::size_t>(rank_); }
  /// Handles calls on tensors of a device other than the CPU: one device per group.
  [[nodiscard]] OnDevice& on(const at::Device& device);

  // One tensor (or one list) per rank. A call that is not async has completed when it returns, and has no Work.
  WorkPtr broadcast(Tensors& tensors, const BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const ReduceOptions& options) override;
  /// The tensors of an output list may differ in size between ranks, if all ranks agree.
  WorkPtr allgather(Lists& outputs, Tensors& inputs, const AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(Lists& outputs, Tensors& inputs, const AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const AllgatherOptions& options) override {
    Tensors outputs{output}, inputs{input};
    return allgather_into_tensor_coalesced(outputs, inputs, options);
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const AllgatherOptions& options) override;
  WorkPtr gather(Lists& outputs, Tensors& inputs, const GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, Lists& inputs, const ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, Lists& inputs, const ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const ReduceScatterOptions& options) override {
    Tensors outputs{output}, inputs{input};
    return reduce_scatter_tensor_coalesced(outputs, inputs, options);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, Rows& output_splits, Rows& input_splits,
                        const AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const AllToAllOptions& options) override;
  WorkPtr barrier(const BarrierOptions& options) override;
  /// A barrier that reports missing ranks: on rank 0 with gloo's messages, on the others in the style of gloo's.
  void monitoredBarrier(const BarrierOptions& options, bool wait_all_ranks) override;

  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  /// Between the two calls, operations are only started; the second call returns one Work for all of them.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override {
    const std::scoped_lock lock(coalescing_mutex_);
    TORCH_CHECK(!coalesced_, "syntony rank ", rank_, ": startCoalescing inside another one");
    coalesced_.emplace();
    coalescing_ = true;
  }
  WorkPtr endCoalescing() override;
  [[nodiscard]] bool coalescing() const { return coalescing_; }
  void coalesce(WorkPtr work) {
    const std::scoped_lock lock(coalescing_mutex_);
    if (coalesced_) coalesced_->push_back(std::move(work));
  }

  /// A backend of `ranks` (of this group), null for others. Collective over this group, which stays usable.
  bool supportsSplitting() const override { return true; }
  BackendPtr split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                   const OptionsPtr& options) override;
  /// A backend of the ranks that are alive and not excluded. With the flag 1 (SHRINK_ABORT) this group is aborted
  /// first; it is shut down in any case. See Communicator::shrink.
  bool supportsShrinking() const override { return true; }
  BackendPtr shrink(const Rows& excluded, int flags, const OptionsPtr& options) override;
  /// A tensor in memory that all ranks of this host can map (core/shm/shareable_memory.hpp).
  bool supportsTensorAlloc(c10::DeviceIndex /*device*/) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

#ifdef C10D_BACKEND_HAS_RECONFIGURE
  /// Leaves the current group, if any, and meets the ranks whose handles are given: all of them must call reconfigure
  /// with the same new `uuid`. Only one thread may use the group meanwhile.
  bool supportsReconfigure() const override { return former_.has_value(); }
  c10d::ReconfigureHandle get_reconfigure_handle() const override;
  WorkPtr reconfigure(const c10d::ReconfigureOptions& options) override;
#endif
#ifdef C10D_BACKEND_HAS_WINDOW
  /// Memory that the ranks of one host map (torch/window.hpp). Collective.
  bool supportsWindow() const override { return communicator().boxes().size() == 1; }
  c10::intrusive_ptr<c10d::Window> new_window(const std::optional<at::Tensor>& tensor) override;
#endif

  /// From now on Works measure their duration. The hook is called for each that ends, on a completion thread or the
  /// caller's.
  void enableCollectivesTiming() override { timing_ = true; }
  void registerOnCompletionHook(CompletionHook&& hook) override {
    TORCH_CHECK(!completions_, "syntony rank ", rank_, ": this group has a hook on completions already");
    onCompletionHook_ = hook;
    completions_ = std::make_shared<Completions>(std::move(hook));
  }
  /// Returns once the hook has been called for all Works.
  void waitForPendingWorks() override {
    if (!completions_) return;
    for (int left = completions_->pending; left > 0; left = completions_->pending) completions_->pending.wait(left);
  }
  [[nodiscard]] bool watched() const { return timing_ || completions_; }  // every end is reported to somebody
  template <typename W>
  void launched(W& work, const Tensors& outputs) const {
    work.launched(outputs, timing_, completions_, hooked());
  }

  /// Torch's hooks on successes and on the group's failure; empty if this version of torch has none.
  [[nodiscard]] const std::shared_ptr<Hooks>& hooks() const { return hooks_; }
  [[nodiscard]] bool hooked() const { return !hooks_->success.empty(); }
#ifdef C10D_BACKEND_HAS_HOOKS
  void registerAbortHook(std::int64_t id, c10d::AbortHook hook) override { hooks_->failure.add(id, std::move(hook)); }
  void unregisterAbortHook(std::int64_t id) override { hooks_->failure.remove(id); }
#endif
#ifdef SYNTONY_TORCH_HAS_COMPLETION_HOOKS
  bool supportsAbortHooks() const override { return true; }
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override {
    hooks_->success.add(id, [hook = std::move(hook)](std::uint64_t key, std::optional<float> milliseconds) {
      hook({.completionKey = key, .duration_ms = milliseconds});
    });
  }
  void unregisterCompletionHook(std::int64_t id) override { hooks_->success.remove(id); }
#endif

  const std::string getBackendName() const override { return "syntony"; }
  /// The name before the colon in the profiler. Set it before the first operation.
  [[nodiscard]] const std::string& title() const { return hooks_->title; }
  void set_title(std::string title) { hooks_->title = std::move(title); }
  OptionsPtr getBackendOptions() override { return options_; }
  void setSequenceNumberForGroup() override {}  // all ranks count from 0
  uint64_t getSequenceNumberForGroup() override { return communicator().sequence(); }
  void setTimeout(std::chrono::milliseconds timeout) override {
    options_->timeout = timeout;
    if (communicator_) communicator().set_timeout(timeout);
  }
  c10d::ErrorType getError() override;
  /// Fails the group on all ranks. If the group can be reconfigured, this rank merely leaves it, which is no error
  /// here.
  void abort() override;
  void shutdown() override;

 private:
  /// The backend over a group derived from this one; null for null.
  template <typename Make>
  BackendPtr made(const OptionsPtr& options, Make&& make);

  std::shared_ptr<Process> process_;
  std::shared_ptr<Communicator> communicator_;
  c10::intrusive_ptr<Options> options_;
  std::optional<Former> former_;
  std::set<std::int64_t> formed_;   // uuids
  std::atomic<bool> left_ = false;  // aborted here, to be reconfigured
  std::mutex coalescing_mutex_;
  std::optional<std::vector<WorkPtr>> coalesced_;
  std::atomic<bool> coalescing_{false};  // whether there is one; checked in every call
  std::mutex on_device_mutex_;
  std::unique_ptr<OnDevice> on_device_;  // created by the first call on such a tensor
  const std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
  bool timing_ = false;
  std::shared_ptr<Completions> completions_;  // null without a hook
};

}  // namespace syntony::glue
