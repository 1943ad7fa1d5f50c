// all_reduce, all_gather and reduce_scatter through NVLink switches (device/nvls.hpp): the algorithm `nvls`.
//
//     Multicast memory(...); join, bind (multicast.hpp);
//     SwitchedGroup group(memory, rank, shape);
//     group.launch(collective, dtype, op, input, output, elements, stream);      one kernel, nothing else
//
// Each rank needs a GPU of its own, and all of them the same switches. Launches of a group follow each other in the
// same order at all ranks. Results are the same bits at all ranks; operands of a sum are added in the switch's order.
//
// Nothing hangs: as in executor.hpp, with the same trouble() (lane: thread block; instruction: 0 filled, 1 summed,
// 2 done).
//
// One thread at a time may use it; abort() and trouble() may be called by any.
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
  /// `memory` is bound at all ranks and outlives this. Throws std::invalid_argument for a shape that does not fit it.
  SwitchedGroup(const Multicast& memory, std::uint32_t rank, const NvlsShape& shape);
  ~SwitchedGroup();
  SwitchedGroup(const SwitchedGroup&) = delete;
  SwitchedGroup& operator=(const SwitchedGroup&) = delete;

  /// `elements` of one block of the collective; buffers as in Program. Throws std::invalid_argument, in a sentence, for
  /// what a switch does not do.
  void launch(Collective collective, DType dtype, ReduceOp op, const std::byte* input, std::byte* output,
              std::size_t elements, cudaStream_t stream);

  /// Of every launch from here on; zero: none.
  void set_timeout(std::chrono::nanoseconds timeout) { timeout_ = timeout; }
  void abort() { words_.abort(); }
  /// Nothing while all is well.
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

/// The kernel, for callers that no CUDA compiler sees.
void run_switched(const NvlsLaunch& launch, std::byte* all, cudaStream_t stream);

}  // namespace syntony::cuda
