// Elements as numbers, one at a time: the same arithmetic, to the bit, as the vectors of core/kernels.
//
// A Format has
//   Storage       how an element lies in memory
//   Wide          what arithmetic happens on
//   widen, narrow Storage -> Wide (exact) and back (to nearest even; a NaN becomes the format's one canonical NaN)
//   apply         Wide op Wide
//
// Formats narrower than float32 are widened to it, so a sum of k operands is accumulated in float32 and rounded once,
// when it is stored. No fused multiply-adds (-fmad=false, -ffp-contract=off), because the CPU's kernels have none.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/kernels/element_types.hpp"
#include "cuda/device/qualifiers.hpp"

namespace syntony::cuda {

template <class To, class From>
SYNTONY_DEVICE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

/// The operators that need an order or a ring. A NaN on either side wins (tested by b != b); of equals the first is
/// kept.
template <class T>
SYNTONY_DEVICE T arithmetic(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::product:
      return static_cast<T>(a * b);
    case ReduceOp::min:
      return ((b < a) | (b != b)) ? b : a;
    case ReduceOp::max:
      return ((b > a) | (b != b)) ? b : a;
    default:
      return static_cast<T>(a + b);
  }
}

/// Sums and products wrap: they are computed on unsigned numbers at least as wide as unsigned.
template <class T>
struct Integer {
  using Storage = T;
  using Wide = T;
  using Ring = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;
  SYNTONY_DEVICE static Wide widen(Storage s) { return s; }
  SYNTONY_DEVICE static Storage narrow(Wide w) { return w; }
  SYNTONY_DEVICE static Wide apply(ReduceOp op, Wide a, Wide b) {
    switch (op) {
      case ReduceOp::band:
        return static_cast<T>(a & b);
      case ReduceOp::bor:
        return static_cast<T>(a | b);
      case ReduceOp::bxor:
        return static_cast<T>(a ^ b);
      case ReduceOp::min:
      case ReduceOp::max:
        return arithmetic<T>(op, a, b);
      default:
        return static_cast<T>(arithmetic<Ring>(op, static_cast<Ring>(a), static_cast<Ring>(b)));
    }
  }
};

/// A truth value: any non-zero byte is true, true is stored as 1. Sum and max are `or`, product and min are `and`.
struct Boolean {
  using Storage = std::uint8_t;
  using Wide = std::uint8_t;
  SYNTONY_DEVICE static Wide widen(Storage s) { return s != 0 ? 1 : 0; }
  SYNTONY_DEVICE static Storage narrow(Wide w) { return w; }
  SYNTONY_DEVICE static Wide apply(ReduceOp op, Wide a, Wide b) {
    switch (op) {
      case ReduceOp::product:
      case ReduceOp::min:
      case ReduceOp::band:
        return static_cast<Wide>(a & b);
      case ReduceOp::bxor:
        return static_cast<Wide>(a ^ b);
      default:
        return static_cast<Wide>(a | b);
    }
  }
};

struct Float32 {
  using Storage = float;
  using Wide = float;
  SYNTONY_DEVICE static Wide widen(Storage s) { return s; }
  SYNTONY_DEVICE static Storage narrow(Wide w) { return w == w ? w : bits_as<float>(std::uint32_t{0x7fc00000}); }
  SYNTONY_DEVICE static Wide apply(ReduceOp op, Wide a, Wide b) { return arithmetic(op, a, b); }
};

struct Float64 {
  using Storage = double;
  using Wide = double;
  SYNTONY_DEVICE static Wide widen(Storage s) { return s; }
  SYNTONY_DEVICE static Storage narrow(Wide w) {
    return w == w ? w : bits_as<double>(std::uint64_t{0x7ff8000000000000});
  }
  SYNTONY_DEVICE static Wide apply(ReduceOp op, Wide a, Wide b) { return arithmetic(op, a, b); }
};

/// The upper half of a float32.
struct BFloat16 {
  using Storage = std::uint16_t;
  using Wide = float;
  SYNTONY_DEVICE static Wide widen(Storage s) { return bits_as<float>(static_cast<std::uint32_t>(s) << 16); }
  SYNTONY_DEVICE static Storage narrow(Wide w) {
    const std::uint32_t bits = bits_as<std::uint32_t>(Float32::narrow(w));
    return static_cast<Storage>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
  }
  SYNTONY_DEVICE static Wide apply(ReduceOp op, Wide a, Wide b) { return arithmetic(op, a, b); }
};

/// How a small format treats the codes that are not finite numbers (core/kernels/kernel_formats.hpp).
enum class Specials : std::uint8_t { ieee, nan_at_all_ones, nan_at_minus_zero };

/// Any sign-exponent-mantissa format narrower than float32, by integer arithmetic on the bits of a float32. Normal
/// numbers shift the exponent by the difference of the biases; the float unit handles subnormals.
template <class Code, unsigned kMantissa, unsigned kBias, unsigned kNaN, unsigned kOverflow, Specials kSpecials>
struct MiniFloat {
  using Storage = Code;
  using Wide = float;
  static constexpr unsigned kBits = 8 * sizeof(Code);
  static constexpr unsigned kShift = 23 - kMantissa;                       // between the two mantissas
  static constexpr std::uint32_t kSign = 1U << (kBits - 1);                // in the narrow code
  static constexpr std::uint32_t kRebias = (127U - kBias) << 23;           // between the two exponents
  static constexpr std::uint32_t kSmallestNormal = kRebias + (1U << 23);   // as float32 bits
  static constexpr std::uint32_t kUlpExponent = 128U - kBias - kMantissa;  // of the smallest subnormal
  static constexpr std::uint32_t kUlp = kUlpExponent << 23;                // as float32 bits
  static constexpr std::uint32_t kMagic = (kUlpExponent + 23U) << 23;      // its last place is kUlp
  static constexpr std::uint32_t kInfinity = 0x7f800000U;                  // of float32

  SYNTONY_DEVICE static Wide widen(Storage s) {
    const std::uint32_t code = s;
    const std::uint32_t magnitude = code & (kSign - 1);
    const std::uint32_t sign = (code & kSign) << (32 - kBits);
    std::uint32_t bits = (magnitude << kShift) + kRebias;
    if (magnitude < (1U << kMantissa)) {
      bits = bits_as<std::uint32_t>(static_cast<float>(magnitude) * bits_as<float>(kUlp));
    }
    if constexpr (kSpecials == Specials::ieee) {
      if (magnitude >= kOverflow) bits |= kInfinity;
    } else if constexpr (kSpecials == Specials::nan_at_all_ones) {
      if (magnitude == kNaN) bits |= 0x7fc00000U;
    } else {
      if (code == kNaN) bits |= 0x7fc00000U;
    }
    return bits_as<float>(bits | sign);
  }

  SYNTONY_DEVICE static Storage narrow(Wide w) {
    const std::uint32_t bits = bits_as<std::uint32_t>(w);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > kInfinity) return static_cast<Storage>(kNaN);
    const std::uint32_t sign = (bits >> (32 - kBits)) & kSign;
    const std::uint32_t odd = (magnitude >> kShift) & 1U;
    std::uint32_t code = (magnitude + odd + ((1U << (kShift - 1)) - 1) - kRebias) >> kShift;
    if (magnitude < kSmallestNormal) {
      code = bits_as<std::uint32_t>(bits_as<float>(magnitude) + bits_as<float>(kMagic)) - kMagic;
    }
    if (code >= kOverflow) code = kOverflow;
    const bool signless = kSpecials == Specials::nan_at_minus_zero && code == 0;  // no minus zero
    return static_cast<Storage>(signless ? code : code | sign);
  }
  SYNTONY_DEVICE static Wide apply(ReduceOp op, Wide a, Wide b) { return arithmetic(op, a, b); }
};

using E4M3FN = MiniFloat<std::uint8_t, 3, 7, 0x7f, 0x7e, Specials::nan_at_all_ones>;
using E5M2 = MiniFloat<std::uint8_t, 2, 15, 0x7f, 0x7c, Specials::ieee>;
using E4M3FNUZ = MiniFloat<std::uint8_t, 3, 8, 0x80, 0x80, Specials::nan_at_minus_zero>;
using E5M2FNUZ = MiniFloat<std::uint8_t, 2, 16, 0x80, 0x80, Specials::nan_at_minus_zero>;

/// GPUs convert float16 in one instruction, but have another canonical NaN.
struct Float16 : MiniFloat<std::uint16_t, 10, 15, 0x7e00, 0x7c00, Specials::ieee> {
#ifdef __CUDA_ARCH__
  SYNTONY_DEVICE static Wide widen(Storage s) {
    Wide w;
    asm("cvt.f32.f16 %0, %1;" : "=f"(w) : "h"(s));
    return w;
  }
  SYNTONY_DEVICE static Storage narrow(Wide w) {
    Storage s;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(s) : "f"(w));
    return w == w ? s : static_cast<Storage>(0x7e00);
  }
#endif
};

/// float8_e8m0fnu: a bare exponent (2^(code - 127), 0xff is NaN). Only min and max are defined.
struct Exponent8 {
  using Storage = std::uint8_t;
  using Wide = float;
  SYNTONY_DEVICE static Wide widen(Storage s) {
    const std::uint32_t code = s;
    const std::uint32_t finite = code == 0 ? 0x00400000U : code << 23;  // 2^-127 is subnormal in float32
    return bits_as<float>(code == 0xffU ? 0x7fc00000U : finite);
  }
  SYNTONY_DEVICE static Storage narrow(Wide w) {
    return static_cast<Storage>(bits_as<std::uint32_t>(Float32::narrow(w)) >> 23);
  }
  SYNTONY_DEVICE static Wide apply(ReduceOp op, Wide a, Wide b) { return arithmetic(op, a, b); }
};

/// Sums wrap, so signed integers are summed like unsigned ones.
[[nodiscard]] SYNTONY_DEVICE DType unsigned_of(DType dtype) {
  switch (dtype) {
    case DType::int8:
      return DType::uint8;
    case DType::int16:
      return DType::uint16;
    case DType::int32:
      return DType::uint32;
    case DType::int64:
      return DType::uint64;
    default:
      return dtype;
  }
}

/// The combinations (dtype, op) that remain after lowering: complex sums have become sums of reals.
template <class Visitor>
SYNTONY_DEVICE void visit_format(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::uint8:
      return visitor(Integer<std::uint8_t>{});
    case DType::int8:
      return visitor(Integer<std::int8_t>{});
    case DType::uint16:
      return visitor(Integer<std::uint16_t>{});
    case DType::int16:
      return visitor(Integer<std::int16_t>{});
    case DType::uint32:
      return visitor(Integer<std::uint32_t>{});
    case DType::int32:
      return visitor(Integer<std::int32_t>{});
    case DType::uint64:
      return visitor(Integer<std::uint64_t>{});
    case DType::int64:
      return visitor(Integer<std::int64_t>{});
    case DType::float16:
    case DType::complex32:
      return visitor(Float16{});
    case DType::bfloat16:
      return visitor(BFloat16{});
    case DType::float32:
    case DType::complex64:
      return visitor(Float32{});
    case DType::float64:
    case DType::complex128:
      return visitor(Float64{});
    case DType::boolean:
      return visitor(Boolean{});
    case DType::float8_e4m3fn:
      return visitor(E4M3FN{});
    case DType::float8_e5m2:
      return visitor(E5M2{});
    case DType::float8_e4m3fnuz:
      return visitor(E4M3FNUZ{});
    case DType::float8_e5m2fnuz:
      return visitor(E5M2FNUZ{});
    case DType::float8_e8m0fnu:
      return visitor(Exponent8{});
  }
}

}  // namespace syntony::cuda
