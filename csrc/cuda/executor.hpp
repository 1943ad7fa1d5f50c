// The CUDA executor: one rank's side of a group of GPUs.
//
//     Executor a(device, rank, shape, ranks_on_device);            its arena: FIFOs and flags that peers write
//     a.connect(arenas);                                           every rank's arena, as this process reaches it
//     LaunchPlan plan(a, program, dtype, op, elements, options);   tables on the GPU; made once, launched often
//     a.launch(plan, pointers, stream);                            one kernel, nothing else
//
// Addresses. Ranks of one process (virtual ranks, or one process with several GPUs) hand each other their pointers;
// ranks of different processes exchange export_memory (cuda_objects.hpp) through whatever store they have. The pointers
// of a launch are those of plan.form().bases, in that order: own buffers, and peers' where the Program is one-sided.
//
// Order. The ranks of a group launch the same plans in the same order. Launches of one Executor follow each other, also
// across streams: where the stream changes, an event orders them; within captured graphs the capture must.
//
// All at once. Lanes wait for lanes of other ranks, so every rank's blocks must be on their GPUs at the same time:
// ranks_on_device (virtual ranks share a GPU) divides what there is. Virtual ranks need a stream each, and a queue of
// the GPU for each stream: CUDA_DEVICE_MAX_CONNECTIONS (8 unless said) must not be less than they are. Ranks in
// different processes on one GPU take turns, time slice by time slice, unless MPS runs: right, and slow.
//
// Nothing hangs. A launch ends in trouble when it waits for a peer for longer than the timeout, or when the host says
// abort(). The rank then runs nothing more; trouble() says who was waited for. The group must be made anew.
//
// One thread at a time may use an Executor; abort() and trouble() may be called by any.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cuda/cuda_objects.hpp"
#include "cuda/lowering.hpp"

namespace syntony::cuda {

class LaunchPlan;

class Executor {
 public:
  /// Throws std::invalid_argument for a shape that cannot be, std::runtime_error where CUDA fails.
  Executor(int device, std::uint32_t rank, const ArenaShape& shape, std::uint32_t ranks_on_device = 1);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] const ArenaShape& shape() const { return shape_; }
  [[nodiscard]] std::byte* arena() const { return arena_.data(); }
  /// Thread blocks of this rank that can be on the GPU beside those of the other ranks there.
  [[nodiscard]] std::uint32_t blocks() const { return blocks_; }
  /// The same, with shared memory for bulk copies. Throws std::invalid_argument where the GPU has none: before sm_90.
  [[nodiscard]] std::uint32_t bulk_blocks() const;

  /// By rank; this rank's own must be arena(). GPUs of one process are given access to each other.
  void connect(std::span<std::byte* const> arenas);
  /// Of every launch from here on; zero: none. A captured launch keeps the one it was captured with.
  void set_timeout(std::chrono::nanoseconds timeout) { timeout_ = timeout; }

  /// `pointers` as plan.form().bases; a null one for this rank's own scratch means the plan's. Throws
  /// std::invalid_argument for a pointer that is missing or not at an element's boundary.
  void launch(const LaunchPlan& plan, std::span<std::byte* const> pointers, cudaStream_t stream);

  /// Until all launches have ended; those of graphs are not known here.
  void wait() const;
  void abort() { words_.abort(); }
  /// Nothing while all is well.
  [[nodiscard]] std::optional<Trouble> trouble() const { return words_.trouble(); }

 private:
  int device_;
  std::uint32_t rank_;
  ArenaShape shape_;
  std::uint32_t ranks_on_device_;
  std::uint32_t blocks_ = 0;
  DeviceMemory arena_;
  DeviceMemory arenas_;  // the pointers to all, for the kernel
  HostWords words_;
  Event last_;  // the end of the last launch,
  std::optional<cudaStream_t> last_stream_;
  std::chrono::nanoseconds timeout_{0};
  std::uint32_t launches_ = 0;
  bool connected_ = false;
};

/// A lowered Program on a GPU, with the scratch that it needs. Must outlive its launches, and graphs that hold them.
class LaunchPlan {
 public:
  /// options.blocks is at most what the executor has (0: all of that). Throws as lower() does.
  LaunchPlan(const Executor& executor, const PreparedProgram& program, DType dtype, ReduceOp op,
             std::span<const std::size_t> elements, LoweringOptions options);

  [[nodiscard]] const KernelForm& form() const { return form_; }
  [[nodiscard]] const KernelTables& tables() const { return tables_; }  // pointers of the GPU
  [[nodiscard]] std::byte* scratch() const { return scratch_.data(); }

 private:
  template <class T>
  const T* place(const std::vector<T>& rows, std::size_t& offset);

  KernelForm form_;
  DeviceMemory memory_;
  DeviceMemory scratch_;
  KernelTables tables_;
};

}  // namespace syntony::cuda
