// The launch parameters of a collective through switches (device/nvls.hpp), with sizes filled in; independent of CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/program/program.hpp"
#include "cuda/device/nvls.hpp"

namespace syntony::cuda {

/// `elements` of one block of the collective; the caller adds the pointers. Throws std::invalid_argument for what a
/// switch cannot do.
[[nodiscard]] NvlsLaunch switched(const NvlsShape& shape, std::uint32_t rank, Collective collective, DType dtype,
                                  ReduceOp op, std::size_t elements);

}  // namespace syntony::cuda
