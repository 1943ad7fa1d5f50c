#include <cuda_runtime.h>

#include "cuda/cuda_machine.cuh"
#include "cuda/cuda_objects.hpp"
#include "cuda/device/interpreter.hpp"
#include "cuda/kernel.hpp"

namespace syntony::cuda {
namespace {

constexpr int kThreads = 512;  // of a block

/// A block of the grid is a block of the interpreter.
__global__ void __launch_bounds__(kThreads, 1) lanes_kernel(const __grid_constant__ Launch launch) {
  __shared__ BlockState shared;
  const CudaMachine machine(launch.abort);
  Interpreter<CudaMachine>(machine, launch, blockIdx.x, shared).run();
}

}  // namespace

int blocks_of_a_processor() {
  int blocks = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, lanes_kernel, kThreads, 0), "asking for the occupancy");
  return blocks;
}

void run_lanes(const Launch& launch, cudaStream_t stream) {
  lanes_kernel<<<launch.tables.blocks, kThreads, 0, stream>>>(launch);
  check(cudaGetLastError(), "launching the lanes");
}

}  // namespace syntony::cuda
