// all_reduce, all_gather and reduce_scatter through NVLink switches (device/nvls.hpp): the algorithm `nvls`.
//
//     Multicast memory(...); join, bind (multicast.hpp);
//     SwitchedGroup group(memory, rank, shape);
//     group.launch(collective, dtype, op, input, output, elements, stream);      one kernel, nothing else
//
// Each rank needs a GPU of its own, all connected to the same switches. Launches of a group run in the same order on
// all ranks. Results are bitwise equal on all ranks; operands of a sum are added in the switch's order.
//
// No hangs: as in executor.hpp, with the same trouble() (lane: thread block; instruction: 0 filled, 1 summed, 2 done).
//
// Only one thread at a time may use it, except that any thread may call abort() and trouble().
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "cuda/cuda_objects.hpp"
#include "cuda/switches/multicast.hpp"
#include "cuda/switches/switched.hpp"

namespace syntony::cuda {

class SwitchedGroup {
 public:
  /// `memory` must be bound on all ranks and outlive this. Throws std::invalid_argument for a shape that does not fit
  /// it.
  SwitchedGroup(const Multicast& memory, std::uint32_t rank, const NvlsShape& shape);
  ~SwitchedGroup();
  SwitchedGroup(const SwitchedGroup&) = delete;
  SwitchedGroup& operator=(const SwitchedGroup&) = delete;

  /// `elements` of one block of the collective; buffers as in Program. Throws std::invalid_argument for what a switch
  /// cannot do.
  void launch(Collective collective, DType dtype, ReduceOp op, const std::byte* input, std::byte* output,
              std::size_t elements, cudaStream_t stream);

  /// Applies to every launch from here on; zero: none.
  void set_timeout(std::chrono::nanoseconds timeout) { timeout_ = timeout; }
  void abort() { words_.abort(); }
  /// Empty if nothing is wrong.
  [[nodiscard]] std::optional<Trouble> trouble() const { return words_.trouble(); }

 private:
  const Multicast& memory_;
  std::uint32_t rank_;
  NvlsShape shape_;
  HostWords words_;
  Event last_;
  std::optional<cudaStream_t> last_stream_;
  std::chrono::nanoseconds timeout_{0};
};

/// The kernel, for callers not compiled by a CUDA compiler.
void run_switched(const NvlsLaunch& launch, std::byte* all, cudaStream_t stream);

}  // namespace syntony::cuda
