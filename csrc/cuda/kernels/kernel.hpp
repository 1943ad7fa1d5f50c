// The interpreter as a kernel, for callers that no CUDA compiler sees.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/device/launch.hpp"

namespace syntony::cuda {

/// Thread blocks of the kernel that one processor of the current device holds at once; `bulk`: with the stages of the
/// copy engine.
[[nodiscard]] int blocks_of_a_processor(bool bulk);

/// Puts one launch of one rank into the stream; nothing else happens, so a capturing stream captures it.
void run_lanes(const Launch& launch, cudaStream_t stream);

}  // namespace syntony::cuda
