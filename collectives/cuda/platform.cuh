// What generated kernels ask of the machine, on a GPU. The tests put a file of this name before it that does the same
// with threads of the host (tests/collectives/cuda/host/platform.cuh).
#pragma once

namespace syntony {

__device__ inline int thread() { return static_cast<int>(threadIdx.x); }
__device__ inline int block() { return static_cast<int>(blockIdx.x); }
__device__ inline int block_threads() { return static_cast<int>(blockDim.x); }
/// All threads of the block; what any of them did before, all of them see after.
__device__ inline void block_barrier() { __syncthreads(); }

// Flags lie in memory that every GPU of the group can reach: hence system scope.
__device__ inline unsigned long long acquire(const unsigned long long* flag) {
  unsigned long long value;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
  return value;
}
__device__ inline void release(unsigned long long* flag, unsigned long long value) {
  asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}
/// Adds 1 and returns what was there, ordered with all that the GPU's blocks do before and after.
__device__ inline unsigned long long add_one(unsigned long long* counter) {
  unsigned long long value;
  asm volatile("atom.add.acq_rel.gpu.u64 %0, [%1], 1;" : "=l"(value) : "l"(counter) : "memory");
  return value;
}
/// Writes `value` where 0 was.
__device__ inline void set_once(unsigned long long* cell, unsigned long long value) { atomicCAS(cell, 0ULL, value); }
__device__ inline unsigned long long nanoseconds() {
  unsigned long long value;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(value));
  return value;
}
__device__ inline void pause() { __nanosleep(20); }

__device__ inline float half_to_float(unsigned short half) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
}
__device__ inline unsigned short float_to_half(float value) {
  unsigned short half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
}

}  // namespace syntony
