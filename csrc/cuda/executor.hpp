// The CUDA executor: one rank's side of a group of GPUs.
//
//     Executor a(device, rank, shape, ranks_on_device);            its arena: FIFOs and flags that peers write
//     a.connect(arenas);                                           every rank's arena, as this process reaches it
//     LaunchPlan plan(a, program, dtype, op, elements, options);   tables on the GPU; made once, launched often
//     a.launch(plan, pointers, stream);                            one kernel, nothing else
//
// Addresses. Ranks of one process (virtual ranks, or one process with several GPUs) pass each other their pointers;
// ranks of different processes exchange export_memory (cuda_objects.hpp) through whatever store they have. The pointers
// of a launch are those of plan.form().bases, in that order: own buffers, and peers' buffers if the Program is
// one-sided.
//
// Order. The ranks of a group launch the same plans in the same order. Launches of one Executor run one after another,
// also across streams: when the stream changes, an event orders them; within captured graphs, the capture must.
//
// Co-residency. Lanes wait for lanes of other ranks, so every rank's blocks must be on their GPUs at the same time:
// ranks_on_device (virtual ranks share a GPU) divides the available blocks. Virtual ranks need a stream each, and a
// hardware queue for each stream: CUDA_DEVICE_MAX_CONNECTIONS (default 8) must not be less than their number. Ranks in
// different processes on one GPU are time-sliced unless MPS runs: correct, but slow.
//
// No hangs. A launch fails if it waits for a peer for longer than the timeout, or if the host calls abort(). The rank
// then runs nothing more; trouble() says which peer it waited for. The group must be recreated.
//
// Only one thread at a time may use an Executor, except that any thread may call abort() and trouble().
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
  /// Throws std::invalid_argument for an invalid shape, std::runtime_error if CUDA fails.
  Executor(int device, std::uint32_t rank, const ArenaShape& shape, std::uint32_t ranks_on_device = 1);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] const ArenaShape& shape() const { return shape_; }
  [[nodiscard]] std::byte* arena() const { return arena_.data(); }
  /// Thread blocks of this rank that fit on the GPU together with those of the other ranks there.
  [[nodiscard]] std::uint32_t blocks() const { return blocks_; }
  /// The same, with shared memory for bulk copies. Throws std::invalid_argument if the GPU has none: before sm_90.
  [[nodiscard]] std::uint32_t bulk_blocks() const;

  /// By rank; this rank's own must be arena(). Enables peer access between GPUs of one process.
  void connect(std::span<std::byte* const> arenas);
  /// Applies to every launch from here on; zero: none. A captured launch keeps the timeout at its capture.
  void set_timeout(std::chrono::nanoseconds timeout) { timeout_ = timeout; }

  /// `pointers` as in plan.form().bases; null for this rank's own scratch means the plan's. Throws
  /// std::invalid_argument for a pointer that is missing or not aligned to an element.
  void launch(const LaunchPlan& plan, std::span<std::byte* const> pointers, cudaStream_t stream);

  /// Waits until all launches have ended, except those in graphs, which are not known here.
  void wait() const;
  void abort() { words_.abort(); }
  /// Empty if nothing is wrong.
  [[nodiscard]] std::optional<Trouble> trouble() const { return words_.trouble(); }

 private:
  int device_;
  std::uint32_t rank_;
  ArenaShape shape_;
  std::uint32_t ranks_on_device_;
  std::uint32_t blocks_ = 0;
  DeviceMemory arena_;
  DeviceMemory arenas_;  // pointers to all arenas, for the kernel
  HostWords words_;
  Event last_;  // the end of the last launch,
  std::optional<cudaStream_t> last_stream_;
  std::chrono::nanoseconds timeout_{0};
  std::uint32_t launches_ = 0;
  bool connected_ = false;
};

/// A lowered Program on a GPU, with its scratch. Must outlive its launches and the graphs that contain them.
class LaunchPlan {
 public:
  /// options.blocks is at most what the executor has (0: all of it). Throws like lower().
  LaunchPlan(const Executor& executor, const PreparedProgram& program, DType dtype, ReduceOp op,
             std::span<const std::size_t> elements, LoweringOptions options);

  [[nodiscard]] const KernelForm& form() const { return form_; }
  [[nodiscard]] const KernelTables& tables() const { return tables_; }  // device pointers
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
