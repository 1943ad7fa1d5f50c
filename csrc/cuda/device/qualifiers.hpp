// One source for two machines: the headers in this folder are compiled by nvcc for GPUs and by any C++20 compiler for
// host threads, where the thread sanitizer and a debugger can inspect them.
#pragma once

#ifdef __CUDACC__
#define SYNTONY_DEVICE __device__ inline         // runs where lanes run
#define SYNTONY_CALLED __device__ __noinline__   // the same, not inlined: one huge kernel would take minutes to compile
#define SYNTONY_BOTH __host__ __device__ inline  // also called by the host of a GPU
#else
#define SYNTONY_DEVICE inline
#define SYNTONY_CALLED inline
#define SYNTONY_BOTH inline
#endif

#ifdef __CUDA_ARCH__
#define SYNTONY_UNROLL _Pragma("unroll")
#else
#define SYNTONY_UNROLL
#endif
