// What is sent to an aggregating switch, and how it sums there.
//
//  float32, float16, bfloat16, float64, int32   elements as in memory; several are added left to right and rounded
//                                               once (core/kernels)
//  int32_block      fixed point with one exponent per block of 256 elements, the largest of all workers' (Sapio et al.,
//                   SwitchML, NSDI'21, section 3.7): workers scale, the switch adds integers
//  float32_fpisa    float32 whose sum is kept as exponent and 32-bit signed mantissa (Yuan et al., FPISA, NSDI'22,
//                   section 3): the operand of the smaller exponent is shifted right, which truncates downwards
//
// Scaling for n workers leaves ceil(log2 n) bits of headroom, so integers never overflow:
//
//   |x| < 2^e in the block     q = round(x * 2^(b - e)),  b = 31 - ceil(log2 n),  |q| <= 2^b - 1
//   error of a sum of n        at most n * 2^(e - b), then one rounding to float32
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/kernels/dtype.hpp"

namespace syntony {

enum class NumberFormat : std::uint8_t { float32, float16, bfloat16, float64, int32, int32_block, float32_fpisa };

inline constexpr std::array<std::string_view, 7> kNumberFormats{"float32", "float16",     "bfloat16",     "float64",
                                                                "int32",   "int32_block", "float32_fpisa"};

[[nodiscard]] constexpr std::string_view name_of(NumberFormat format) {
  return kNumberFormats[static_cast<std::size_t>(format)];
}
[[nodiscard]] std::optional<NumberFormat> number_format_named(std::string_view name);

/// Bytes of one element on the wire.
[[nodiscard]] std::size_t wire_bytes(NumberFormat format);
/// True if elements of `dtype` may be sent in `format`: as they are, or converted from float32 by the worker.
[[nodiscard]] bool carries(NumberFormat format, DType dtype);
/// True if memory is sent and received unconverted.
[[nodiscard]] bool verbatim(NumberFormat format, DType dtype);
/// The most workers whose sums cannot overflow.
[[nodiscard]] std::size_t most_workers(NumberFormat format);

/// What the switch does: dst = sources[0] + sources[1] + .. in wire format; `dst` must not overlap the sources.
void add_on_wire(NumberFormat format, std::byte* dst, std::span<const std::byte* const> sources, std::size_t count);

inline constexpr std::size_t kBlockElements = 256;
[[nodiscard]] constexpr std::size_t blocks_of(std::size_t elements) {
  return (elements + kBlockElements - 1) / kBlockElements;
}
/// The exponent of a block that holds an infinity or a NaN; its sum is NaN.
inline constexpr std::uint8_t kNotFinite = 255;

/// The largest biased exponent in each block of float32 `values`: blocks_of(values.size()) of them.
void block_exponents(std::span<const float> values, std::uint8_t* exponents);

/// Converts float32 to wire format, as one of `workers`. `exponents` are the blocks', agreed among all workers
/// (int32_block only).
void to_wire(NumberFormat format, std::byte* wire, std::span<const float> values, const std::uint8_t* exponents,
             std::size_t workers);
/// The inverse, for a sum.
void from_wire(NumberFormat format, std::span<float> values, const std::byte* wire, const std::uint8_t* exponents,
               std::size_t workers);

/// The whole path in one place: float32 sources to the float32 sum that workers and switch compute together. Throws
/// Error(invalid) for too many sources or a format that cannot carry float32.
void sum_through_switch(NumberFormat format, std::span<float> dst, std::span<const float* const> sources);

}  // namespace syntony
