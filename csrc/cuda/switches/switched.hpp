// What a collective through switches is launched with (device/nvls.hpp), sizes put in; knows no CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/program/program.hpp"
#include "cuda/device/nvls.hpp"

namespace syntony::cuda {

/// `elements` of one block of the collective; pointers are the caller's to add. Throws std::invalid_argument, in a
/// sentence, for what a switch does not do.
[[nodiscard]] NvlsLaunch switched(const NvlsShape& shape, std::uint32_t rank, Collective collective, DType dtype,
                                  ReduceOp op, std::size_t elements);

}  // namespace syntony::cuda
