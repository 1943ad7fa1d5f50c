// The interpreter as a kernel, for callers not compiled by a CUDA compiler.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/device/launch.hpp"

namespace syntony::cuda {

/// Thread blocks of the kernel that one processor of the current device holds at once; `bulk`: including the copy
/// engine's stages.
[[nodiscard]] int blocks_of_a_processor(bool bulk);

/// Puts one launch of one rank into the stream and does nothing else, so a capturing stream captures it.
void run_lanes(const Launch& launch, cudaStream_t stream);

}  // namespace syntony::cuda
