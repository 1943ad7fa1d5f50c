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

/// What moves beside a reduction whose result goes past the caches, block by block in the same loop. One loop that
/// reads memory, one that reads caches and one that writes memory wait for different things: together they take the
/// time of the slowest (all_reduce of 64 MiB by two ranks, ms: 5.4 instead of 5.8, where copying 64 MiB takes 4.5).
struct Beside {
  struct Move {
    std::byte* to;
    const std::byte* from;
  };
  std::byte* also = nullptr;             // gets the result, too, through the caches, if not null;
  std::span<std::byte* const> too = {};  // these, past them
  std::span<const Move> shown = {};      // as many bytes as the result has, through the caches,
  std::span<const Move> taken = {};      // and past them
};
/// reduce_past() with this beside it. What is written may be read at the same place of the operation only.
void reduce_past_beside(DType dtype, ReduceOp op, std::byte* dst, std::span<const std::byte* const> sources,
                        std::size_t count, const Beside& beside);

/// dst[i] = src[i] * factor (complex: both parts); throws std::invalid_argument for integers and bool. `dst` may equal
/// `src`.
void scale(DType dtype, std::byte* dst, const std::byte* src, std::size_t count, double factor);

/// data[i] = data[i] / divisor: floats divide in float32 (or wider), integers truncate toward zero. Refuses bool.
void divide(DType dtype, std::byte* data, std::size_t count, std::int64_t divisor);

/// The instruction set chosen on this machine: "avx512", "avx2" or "portable".
/// `SYNTONY_ISA` may name a lesser one (for tests); naming one that the machine lacks throws.
[[nodiscard]] std::string_view kernel_isa();

}  // namespace syntony
