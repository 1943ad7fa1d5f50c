// One text for two machines: the headers of this folder are compiled by nvcc for GPUs and by any C++20 compiler for
// threads of the host, where the thread sanitizer and a debugger can look at them.
#pragma once

#ifdef __CUDACC__
#define SYNTONY_DEVICE __device__ inline         // runs where lanes run
#define SYNTONY_CALLED __device__ __noinline__   // the same, and apart: one huge kernel would take minutes to compile
#define SYNTONY_BOTH __host__ __device__ inline  // is also asked by the host of a GPU
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
