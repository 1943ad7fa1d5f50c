// torch.distributed's backend over a Communicator: it turns tensors into Blocks and Works into torch's Works. Which
// bytes go where, and what can go wrong on the way, is the Communicator's business.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "bindings/process.hpp"
#include "torch/syntony_work.hpp"

namespace syntony::glue {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

inline std::size_t elements_of(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

class SyntonyBackend : public c10d::Backend {
 public:
  struct Options : c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds limit) : c10d::Backend::Options("syntony", limit) {}
  };

  SyntonyBackend(std::shared_ptr<Process> process, std::shared_ptr<Communicator> communicator,
                 c10::intrusive_ptr<Options> options);

  /// Throws in a forked child.
  [[nodiscard]] Communicator& communicator() const;
  /// For Python, which makes a Communicator of it.
  [[nodiscard]] const std::shared_ptr<Communicator>& shared() const { return communicator_; }
  [[nodiscard]] const std::shared_ptr<Process>& process() const { return process_; }
  [[nodiscard]] std::size_t self() const { return static_cast<std::size_t>(rank_); }

  // One tensor (or one list) per rank.
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  /// The tensors of an output list may differ in size from rank to rank, if all ranks agree.
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  /// A barrier that says who is missing in the words of torch's own; it always names all of them.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  /// Between the two, operations only start; the second returns one Work for all of them.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  [[nodiscard]] bool coalescing();
  void coalesce(c10::intrusive_ptr<SyntonyWork> work);

  /// A backend of `ranks` (of this group), null for others. Collective over this group, beside which it lives.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  /// A backend of those that live and are not excluded. With the flag 1 (SHRINK_ABORT) this group is aborted first; it
  /// is shut down in any case. Communicator::shrink.
  bool supportsShrinking() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t>& excluded, int flags,
                                           const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  /// A tensor in memory that all ranks of this host could map (core/shm/shareable_memory.hpp).
  bool supportsTensorAlloc(c10::DeviceIndex /*device*/) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  const std::string getBackendName() const override { return "syntony"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  void setSequenceNumberForGroup() override {}  // all ranks count from 0
  uint64_t getSequenceNumberForGroup() override { return communicator().sequence(); }
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

 private:
  /// The backend over a group made out of this one; null for null.
  template <typename Make>
  c10::intrusive_ptr<c10d::Backend> made(const c10::intrusive_ptr<c10d::Backend::Options>& options, Make&& make);

  std::shared_ptr<Process> process_;
  std::shared_ptr<Communicator> communicator_;
  c10::intrusive_ptr<Options> options_;
  std::mutex coalescing_mutex_;
  std::optional<std::vector<c10::intrusive_ptr<SyntonyWork>>> coalesced_;
};

}  // namespace syntony::glue
