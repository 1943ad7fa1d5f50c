#include <cuda_runtime.h>

#include "cuda/cuda_objects.hpp"
#include "cuda/device/bulk_machine.cuh"
#include "cuda/device/interpreter.hpp"
#include "cuda/kernels/kernel.hpp"

namespace syntony::cuda {
namespace {

constexpr int kThreads = 512;  // of a block

/// A block of the grid is a block of the interpreter.
__global__ void __launch_bounds__(kThreads, 1) lanes_kernel(const __grid_constant__ Launch launch) {
  __shared__ BlockState shared;
  __shared__ BulkRing ring;
  extern __shared__ __align__(128) std::byte stages[];
  const BulkMachine machine(launch.abort, launch.bulk ? &ring : nullptr, stages);
  if (launch.bulk && threadIdx.x == 0) machine.bulk_prepare();
  Interpreter<BulkMachine>(machine, launch, blockIdx.x, shared).run();
}

/// Shared memory per block beyond what the kernel itself declares.
std::size_t stages_bytes(bool bulk) {
  if (!bulk) return 0;
  constexpr int kBytes = BulkStages::kStages * BulkStages::kBytes;
  check(cudaFuncSetAttribute(lanes_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
        "asking for shared memory");
  return kBytes;
}

}  // namespace

int blocks_of_a_processor(bool bulk) {
  int blocks = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, lanes_kernel, kThreads, stages_bytes(bulk)),
        "asking for the occupancy");
  return blocks;
}

void run_lanes(const Launch& launch, cudaStream_t stream) {
  lanes_kernel<<<launch.tables.blocks, kThreads, stages_bytes(launch.bulk), stream>>>(launch);
  check(cudaGetLastError(), "launching the lanes");
}

}  // namespace syntony::cuda
