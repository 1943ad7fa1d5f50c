// How each element type enters and leaves vector registers.
//
// A Format has
//   kBytes          bytes of memory that one load or store touches
//   Wide            what arithmetic happens on: a vector, a Pack of vectors, or Complex
//   kVectors        registers in a Wide
//   load, store     memory -> Wide -> memory; widening is exact, narrowing rounds to nearest even
//
// Vectors are the compiler's own (GCC and Clang vector extensions), so one source serves every instruction set. Every
// template takes an `Isa` that is local to one translation unit, so code compiled for AVX-512 can never be linked into
// the portable path.
//
// A NaN is stored as the format's one canonical NaN. Which of two NaN payloads an addition keeps depends on the operand
// order that a compiler happens to choose; without this, ranks on different machines could disagree in those bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace syntony::kernels {

/// `N` lanes of T.
template <class T, std::size_t N>
struct VectorOf {
  using Type [[gnu::vector_size(N * sizeof(T))]] = T;
};

template <class T, std::size_t N>
using Vector = typename VectorOf<T, N>::Type;

/// One full register of T.
template <class Isa, class T>
using Register = Vector<T, Isa::kBytes / sizeof(T)>;

/// Adjacent narrow elements that share a 32-bit lane, widened: part[j] holds the j-th element of every lane.
template <class V, std::size_t N>
struct Pack {
  V part[N];
};

template <class V>
struct Complex {
  V real, imag;
};

/// f(0), f(1) .. f(N-1), unrolled at compile time, so that arrays of vectors stay in registers.
template <std::size_t N, class F>
[[gnu::always_inline]] inline void each(F f) {
  [&]<std::size_t... I>(std::index_sequence<I...>)
      __attribute__((always_inline)) { (f(I), ...); }(std::make_index_sequence<N>{});
}

template <class V>
[[gnu::always_inline]] inline V load_bytes(const std::byte* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

template <class V>
[[gnu::always_inline]] inline void store_bytes(std::byte* to, V v) {
  __builtin_memcpy(to, &v, sizeof v);
}

template <class To, class From>
[[gnu::always_inline]] inline To bits_as(From v) {
  return __builtin_bit_cast(To, v);
}

template <class V>
[[gnu::always_inline]] inline V canonical(V v) {
  using T = std::remove_cvref_t<decltype(v[0])>;
  if constexpr (sizeof(T) == 4) {
    return v == v ? v : V{} + __builtin_nanf("");
  } else {
    return v == v ? v : V{} + __builtin_nan("");
  }
}

template <class Isa, class T>
struct Integer {
  static constexpr std::size_t kBytes = Isa::kBytes;
  static constexpr std::size_t kVectors = 1;
  using Wide = Register<Isa, T>;
  [[gnu::always_inline]] static Wide load(const std::byte* from) { return load_bytes<Wide>(from); }
  [[gnu::always_inline]] static void store(std::byte* to, Wide v) { store_bytes(to, v); }
};

/// A truth value: any non-zero byte is true, true is stored as 1.
template <class Isa>
struct Boolean {
  static constexpr std::size_t kBytes = Isa::kBytes;
  static constexpr std::size_t kVectors = 1;
  using Wide = Register<Isa, std::uint8_t>;
  [[gnu::always_inline]] static Wide load(const std::byte* from) {
    return (load_bytes<Wide>(from) != 0) ? Wide{} + 1 : Wide{};
  }
  [[gnu::always_inline]] static void store(std::byte* to, Wide v) { store_bytes(to, v); }
};

/// float32 and float64.
template <class Isa, class T>
struct Float {
  static constexpr std::size_t kBytes = Isa::kBytes;
  static constexpr std::size_t kVectors = 1;
  using Wide = Register<Isa, T>;
  [[gnu::always_inline]] static Wide load(const std::byte* from) { return load_bytes<Wide>(from); }
  [[gnu::always_inline]] static void store(std::byte* to, Wide v) { store_bytes(to, canonical(v)); }
};

/// Formats that are widened to float32. N adjacent elements share a 32-bit lane and are split by shifts and masks,
/// which needs no shuffle on the way in or out. For 16-bit elements (N = 2):
///
///     lane  | b b b b | a a a a |     part[0] = lane & 0xffff -> widen -> a
///                                     part[1] = lane >> 16    -> widen -> b
///
/// `Codec` has kBits, widen(U32 code) -> F32 and narrow(F32) -> U32 code, each on one element per lane.
template <class Isa, class Codec>
struct Narrow {
  static constexpr std::size_t kBytes = Isa::kBytes;
  static constexpr std::size_t kVectors = 32 / Codec::kBits;
  using F32 = Register<Isa, float>;
  using U32 = Register<Isa, std::uint32_t>;
  using Wide = Pack<F32, kVectors>;

  [[gnu::always_inline]] static Wide load(const std::byte* from) {
    const U32 lanes = load_bytes<U32>(from);
    Wide v;
    each<kVectors>([&](std::size_t j) __attribute__((always_inline)) {
      const U32 shifted = lanes >> (Codec::kBits * j);
      v.part[j] = Codec::widen(j + 1 == kVectors ? shifted : shifted & ((1U << Codec::kBits) - 1));
    });
    return v;
  }
  [[gnu::always_inline]] static void store(std::byte* to, Wide v) {
    U32 lanes{};
    each<kVectors>([&](std::size_t j) __attribute__((always_inline)) {
      lanes |= Codec::narrow(canonical(v.part[j])) << (Codec::kBits * j);
    });
    store_bytes(to, lanes);
  }
};

/// The upper half of a float32: the upper element of a lane is widened and stored in place.
template <class Isa>
struct BFloat16 {
  static constexpr std::size_t kBytes = Isa::kBytes;
  static constexpr std::size_t kVectors = 2;
  using F32 = Register<Isa, float>;
  using U32 = Register<Isa, std::uint32_t>;
  using Wide = Pack<F32, kVectors>;

  [[gnu::always_inline]] static Wide load(const std::byte* from) {
    const U32 lanes = load_bytes<U32>(from);
    return {{bits_as<F32>(lanes << 16), bits_as<F32>(lanes & 0xffff0000U)}};
  }
  [[gnu::always_inline]] static void store(std::byte* to, Wide v) {
    store_bytes(to, (rounded(v.part[0]) >> 16) | (rounded(v.part[1]) & 0xffff0000U));
  }

 private:
  [[gnu::always_inline]] static U32 rounded(F32 v) {
    const U32 bits = bits_as<U32>(canonical(v));
    return bits + 0x7fffU + ((bits >> 16) & 1U);
  }
};

/// How a small format treats the codes that are not finite numbers.
enum class Specials : std::uint8_t {
  ieee,              ///< top exponent: infinities and NaNs; overflow gives infinity
  nan_at_all_ones,   ///< "fn": magnitude 0x7f is NaN; overflow saturates
  nan_at_minus_zero  ///< "fnuz": 0x80 is NaN, there is no minus zero; overflow gives NaN
};

// Layouts of the binary formats narrower than float32: storage, explicit mantissa bits, exponent bias, specials, and
// the codes for NaN and overflow. They match torch's: e4m3fn saturates at 448, also for infinities (since torch 2.13;
// NaN before).
struct LayoutFloat16 {
  using Storage = std::uint16_t;
  static constexpr unsigned kMantissa = 10, kBias = 15, kNaN = 0x7e00, kOverflow = 0x7c00;
  static constexpr Specials kSpecials = Specials::ieee;
};
struct LayoutE4M3FN {
  using Storage = std::uint8_t;
  static constexpr unsigned kMantissa = 3, kBias = 7, kNaN = 0x7f, kOverflow = 0x7e;
  static constexpr Specials kSpecials = Specials::nan_at_all_ones;
};
struct LayoutE5M2 {
  using Storage = std::uint8_t;
  static constexpr unsigned kMantissa = 2, kBias = 15, kNaN = 0x7f, kOverflow = 0x7c;
  static constexpr Specials kSpecials = Specials::ieee;
};
struct LayoutE4M3FNUZ {
  using Storage = std::uint8_t;
  static constexpr unsigned kMantissa = 3, kBias = 8, kNaN = 0x80, kOverflow = 0x80;
  static constexpr Specials kSpecials = Specials::nan_at_minus_zero;
};
struct LayoutE5M2FNUZ {
  using Storage = std::uint8_t;
  static constexpr unsigned kMantissa = 2, kBias = 16, kNaN = 0x80, kOverflow = 0x80;
  static constexpr Specials kSpecials = Specials::nan_at_minus_zero;
};

/// Any sign-exponent-mantissa format narrower than float32, by integer arithmetic on the bits of a float32.
///
/// Normal numbers shift the exponent by the difference of the biases. Subnormals have no leading one to shift, so the
/// float unit does it: widening multiplies the mantissa (an integer) by the smallest subnormal; narrowing adds a power
/// of two whose last place *is* the smallest subnormal, which leaves the rounded code in the low bits.
template <class Isa, class Layout>
struct MiniFloatCodec {
  using F32 = Register<Isa, float>;
  using U32 = Register<Isa, std::uint32_t>;
  using I32 = Register<Isa, std::int32_t>;

  static constexpr unsigned kBits = 8 * sizeof(typename Layout::Storage);
  static constexpr unsigned kShift = 23 - Layout::kMantissa;                               // between the two mantissas
  static constexpr std::uint32_t kSign = 1U << (kBits - 1);                                // in the narrow code
  static constexpr std::uint32_t kRebias = (127U - Layout::kBias) << 23;                   // between the two exponents
  static constexpr std::uint32_t kSmallestNormal = kRebias + (1U << 23);                   // as float32 bits
  static constexpr std::uint32_t kUlpExponent = 128U - Layout::kBias - Layout::kMantissa;  // of the smallest subnormal
  static constexpr std::uint32_t kUlp = kUlpExponent << 23;                                // as float32 bits
  static constexpr std::uint32_t kMagic = (kUlpExponent + 23U) << 23;                      // its last place is kUlp
  static constexpr std::uint32_t kInfinity = 0x7f800000U;                                  // of float32

  [[gnu::always_inline]] static F32 widen(U32 code) {
    const U32 magnitude = code & (kSign - 1);
    const U32 sign = (code & kSign) << (32 - kBits);
    const U32 normal = (magnitude << kShift) + kRebias;
    const F32 subnormal = __builtin_convertvector(bits_as<I32>(magnitude), F32) * __builtin_bit_cast(float, kUlp);
    U32 bits = below(magnitude, 1U << Layout::kMantissa) ? bits_as<U32>(subnormal) : normal;
    if constexpr (Layout::kSpecials == Specials::ieee) {
      bits = below(magnitude, Layout::kOverflow) ? bits : bits | kInfinity;
    } else if constexpr (Layout::kSpecials == Specials::nan_at_all_ones) {
      bits = magnitude == Layout::kNaN ? bits | 0x7fc00000U : bits;
    } else {
      bits = code == Layout::kNaN ? bits | 0x7fc00000U : bits;
    }
    return bits_as<F32>(bits | sign);
  }

  [[gnu::always_inline]] static U32 narrow(F32 v) {
    const U32 bits = bits_as<U32>(v);
    const U32 magnitude = bits & 0x7fffffffU;
    const U32 sign = (bits >> (32 - kBits)) & kSign;
    const U32 odd = (magnitude >> kShift) & 1U;
    const U32 normal = (magnitude + odd + ((1U << (kShift - 1)) - 1) - kRebias) >> kShift;
    const U32 subnormal = bits_as<U32>(bits_as<F32>(magnitude) + __builtin_bit_cast(float, kMagic)) - kMagic;
    U32 code = below(magnitude, kSmallestNormal) ? subnormal : normal;
    code = below(code, Layout::kOverflow) ? code : U32{} + Layout::kOverflow;
    if constexpr (Layout::kSpecials == Specials::nan_at_minus_zero) {
      code = code == 0 ? code : code | sign;  // no minus zero
    } else {
      code |= sign;
    }
    return below(magnitude, kInfinity + 1) ? code : U32{} + Layout::kNaN;
  }

 private:
  /// Both sides are below 2^31, where a signed comparison gives the same result and every instruction set has one.
  [[gnu::always_inline]] static I32 below(U32 a, std::uint32_t b) {
    return bits_as<I32>(a) < static_cast<std::int32_t>(b);
  }
};

template <class Isa, class Layout>
using MiniFloat = Narrow<Isa, MiniFloatCodec<Isa, Layout>>;

/// float16 by hardware conversion.
template <class Isa>
struct HardwareFloat16 {
  static constexpr std::size_t kBytes = Isa::kBytes / 2;
  static constexpr std::size_t kVectors = 1;
  using Wide = Register<Isa, float>;
  using Half = Vector<std::uint16_t, kBytes / 2>;
  [[gnu::always_inline]] static Wide load(const std::byte* from) { return Isa::widen_half(load_bytes<Half>(from)); }
  [[gnu::always_inline]] static void store(std::byte* to, Wide v) {
    store_bytes<Half>(to, Isa::narrow_half(canonical(v)));
  }
};

template <class Isa>
struct Float16Of {
  using Type = MiniFloat<Isa, LayoutFloat16>;
};
template <class Isa>
  requires requires { &Isa::widen_half; }
struct Float16Of<Isa> {
  using Type = HardwareFloat16<Isa>;
};
template <class Isa>
using Float16 = typename Float16Of<Isa>::Type;

/// float8_e8m0fnu: a bare exponent (2^(code - 127), 0xff is NaN). Only for operations that return one of their
/// operands.
template <class Isa>
struct Exponent8Codec {
  static constexpr unsigned kBits = 8;
  using F32 = Register<Isa, float>;
  using U32 = Register<Isa, std::uint32_t>;
  [[gnu::always_inline]] static F32 widen(U32 code) {
    const U32 finite = code == 0 ? U32{} + 0x00400000U : code << 23;  // 2^-127 is subnormal in float32
    return bits_as<F32>(code == 0xffU ? U32{} + 0x7fc00000U : finite);
  }
  [[gnu::always_inline]] static U32 narrow(F32 v) { return bits_as<U32>(v) >> 23; }
};

template <class Isa>
using Exponent8 = Narrow<Isa, Exponent8Codec<Isa>>;

/// Complex numbers over a real Format, with real and imaginary parts separated.
template <class Real>
struct ComplexOf {
  static constexpr std::size_t kBytes = 2 * Real::kBytes;
  static constexpr std::size_t kVectors = 2;
  using V = typename Real::Wide;
  using Wide = Complex<V>;
  static constexpr std::size_t kHalf = sizeof(V) / sizeof(V{}[0]) / 2;

  [[gnu::always_inline]] static Wide load(const std::byte* from) {
    const V first = Real::load(from);
    const V second = Real::load(from + Real::kBytes);
    Wide v;
    for (std::size_t i = 0; i < kHalf; ++i) {
      v.real[i] = first[2 * i], v.imag[i] = first[2 * i + 1];
      v.real[i + kHalf] = second[2 * i], v.imag[i + kHalf] = second[2 * i + 1];
    }
    return v;
  }
  [[gnu::always_inline]] static void store(std::byte* to, Wide v) {
    V first{}, second{};  // under a sanitizer GCC sees no element written
    for (std::size_t i = 0; i < kHalf; ++i) {
      first[2 * i] = v.real[i], first[2 * i + 1] = v.imag[i];
      second[2 * i] = v.real[i + kHalf], second[2 * i + 1] = v.imag[i + kHalf];
    }
    Real::store(to, first);
    Real::store(to + Real::kBytes, second);
  }
};

/// A Pack of two has them separated already.
template <class Real>
  requires(Real::kVectors == 2)
struct ComplexOf<Real> {
  static constexpr std::size_t kBytes = Real::kBytes;
  static constexpr std::size_t kVectors = 2;
  using Wide = Complex<typename Real::F32>;
  [[gnu::always_inline]] static Wide load(const std::byte* from) {
    const auto v = Real::load(from);
    return {v.part[0], v.part[1]};
  }
  [[gnu::always_inline]] static void store(std::byte* to, Wide v) { Real::store(to, {{v.real, v.imag}}); }
};

}  // namespace syntony::kernels
