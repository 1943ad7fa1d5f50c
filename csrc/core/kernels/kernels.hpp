// Arithmetic on buffers: the only place that knows what an element is.
//
// One table of functions per instruction set (portable, AVX2, AVX-512), chosen once by cpuid. Formats narrower than
// float32 (float16, bfloat16, the float8 family) are widened, accumulated in float32 over all operands, and rounded
// once. Integer arithmetic wraps. bool is a truth value: sum and max are `or`, product and min are `and`.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "core/kernels/dtype.hpp"

namespace syntony {

/// True if `op` is defined for `dtype` (no order on complex numbers, no bitwise operations on floats).
[[nodiscard]] bool supports(DType dtype, ReduceOp op);

/// dst[i] = (..(sources[0][i] op sources[1][i]) op ..) op sources[k-1][i] for `count` elements; k >= 1. `dst` may be
/// the same pointer as any source; partial overlap is not allowed. Throws std::invalid_argument if unsupported.
void reduce(DType dtype, ReduceOp op, std::byte* dst, std::span<const std::byte* const> sources, std::size_t count);
/// The same, from several pages at a time (as paged_copy(), vector_copy.hpp).
void reduce_paged(DType dtype, ReduceOp op, std::byte* dst, std::span<const std::byte* const> sources,
                  std::size_t count);
/// The same for a result that will not stay in the caches: `dst`, which is none of the sources, is written past them.
void reduce_past(DType dtype, ReduceOp op, std::byte* dst, std::span<const std::byte* const> sources,
                 std::size_t count);
/// The same, and `also`, which is no source either, gets the result through the caches.
void reduce_past_and_show(DType dtype, ReduceOp op, std::byte* dst, std::span<const std::byte* const> sources,
                          std::size_t count, std::byte* also);

/// dst[i] = src[i] * factor (complex: both parts); throws std::invalid_argument for integers and bool. `dst` may equal
/// `src`.
void scale(DType dtype, std::byte* dst, const std::byte* src, std::size_t count, double factor);

/// data[i] = data[i] / divisor: floats divide in float32 (or wider), integers truncate toward zero. Refuses bool.
void divide(DType dtype, std::byte* data, std::size_t count, std::int64_t divisor);

/// The instruction set chosen on this machine: "avx512", "avx2" or "portable".
/// `SYNTONY_ISA` may name a lesser one (for tests); naming one that the machine lacks throws.
[[nodiscard]] std::string_view kernel_isa();

}  // namespace syntony
