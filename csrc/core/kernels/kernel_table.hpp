// One table of kernels per instruction set; kernels.cpp picks one table for the life of the process.
#pragma once

#include <cstddef>
#include <string_view>

#include "core/kernels/dtype.hpp"
#include "core/kernels/kernels.hpp"

namespace syntony {

/// Entries are indexed by DType (then ReduceOp); a null entry means that the combination is undefined. Sizes are in
/// bytes (a whole number of elements), so that types of equal behaviour share one function.
struct KernelTable {
  /// `pages`: how many are read at a time. `beside`: only for results past the caches.
  using Reduce = void (*)(std::byte* dst, const std::byte* const* sources, std::size_t operands, std::size_t bytes,
                          std::size_t pages, const Beside& beside);
  using Map = void (*)(std::byte* dst, const std::byte* src, std::size_t bytes, double operand);

  std::string_view isa;
  Reduce reduce[kDTypes.size()][kReduceOps.size()];
  Reduce reduce_past[kDTypes.size()][kReduceOps.size()];  ///< past the caches, if the instruction set can
  Map scale[kDTypes.size()];
  Map divide[kDTypes.size()];  ///< floating point only; integer division needs no vectors and lives in kernels.cpp
};

extern const KernelTable kPortableKernels;
#ifdef __x86_64__
extern const KernelTable kAvx2Kernels;    ///< needs AVX2 and F16C
extern const KernelTable kAvx512Kernels;  ///< needs AVX-512 F, BW, DQ and VL
#endif
#ifdef __aarch64__
extern const KernelTable kNeonKernels;
#endif

}  // namespace syntony
