// Element types and reductions on a thread block: the device's side of csrc/core/kernels, equal to it bit by bit.
//
// A Format has
//   Storage      one element in memory (of complex sums: one part of it)
//   Wide         what arithmetic happens on
//   widen, narrow  memory <-> Wide; widening is exact, narrowing rounds to nearest even
//
// Everything is integer arithmetic or one float operation, so host compilers take the same text (the tests do). Compile
// with -fmad=false: a fused multiply-add here and not on the CPU would make ranks disagree.
#pragma once

#include "platform.cuh"

namespace syntony {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// ---- formats --------------------------------------------------------------------------------------------------------

template <class T>
struct Integer {
  using Storage = T;
  using Wide = T;
  static __device__ Wide widen(Storage v) { return v; }
  static __device__ Storage narrow(Wide v) { return v; }
};

/// Any non-zero byte is true, true is stored as 1.
struct Boolean {
  using Storage = u8;
  using Wide = u8;
  static __device__ Wide widen(Storage v) { return v != 0; }
  static __device__ Storage narrow(Wide v) { return v; }
};

/// NaN is stored as the format's one canonical NaN.
struct Float32 {
  using Storage = float;
  using Wide = float;
  static __device__ Wide widen(Storage v) { return v; }
  static __device__ Storage narrow(Wide v) { return v == v ? v : __uint_as_float(0x7fc00000U); }
};
struct Float64 {
  using Storage = double;
  using Wide = double;
  static __device__ Wide widen(Storage v) { return v; }
  static __device__ Storage narrow(Wide v) { return v == v ? v : __longlong_as_double(0x7ff8000000000000LL); }
};
struct BFloat16 {
  using Storage = u16;
  using Wide = float;
  static __device__ Wide widen(Storage v) { return __uint_as_float(static_cast<u32>(v) << 16); }
  static __device__ Storage narrow(Wide v) {
    const u32 bits = __float_as_uint(Float32::narrow(v));
    return static_cast<Storage>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
  }
};
struct Float16 {
  using Storage = u16;
  using Wide = float;
  static __device__ Wide widen(Storage v) { return half_to_float(v); }
  static __device__ Storage narrow(Wide v) { return float_to_half(Float32::narrow(v)); }
};

/// What an 8-bit format does with the codes that are no finite number.
enum class Specials { ieee, nan_at_all_ones, nan_at_minus_zero };

/// A sign, an exponent and kMantissa bits in one byte. Subnormals have no leading one to move, so the float unit does it:
/// widening multiplies by the smallest subnormal, narrowing adds a power of two whose last place is that subnormal.
template <u32 kMantissa, u32 kBias, Specials kSpecials, u32 kNaN, u32 kOverflow>
struct MiniFloat {
  using Storage = u8;
  using Wide = float;
  static constexpr u32 kShift = 23 - kMantissa;
  static constexpr u32 kRebias = (127 - kBias) << 23;
  static constexpr u32 kSmallestNormal = kRebias + (1U << 23);
  static constexpr u32 kUlpExponent = 128 - kBias - kMantissa;  // of the smallest subnormal, as float32
  static constexpr u32 kMagic = (kUlpExponent + 23) << 23;

  static __device__ Wide widen(Storage code) {
    const u32 magnitude = code & 0x7fU;
    const u32 sign = (code & 0x80U) << 24;
    u32 bits = (magnitude << kShift) + kRebias;
    if (magnitude < (1U << kMantissa)) {
      bits = __float_as_uint(static_cast<float>(magnitude) * __uint_as_float(kUlpExponent << 23));
    }
    if (kSpecials == Specials::ieee && magnitude >= kOverflow) bits |= 0x7f800000U;
    if (kSpecials == Specials::nan_at_all_ones && magnitude == kNaN) bits |= 0x7fc00000U;
    if (kSpecials == Specials::nan_at_minus_zero && code == kNaN) bits |= 0x7fc00000U;
    return __uint_as_float(bits | sign);
  }
  static __device__ Storage narrow(Wide v) {
    const u32 bits = __float_as_uint(v);
    const u32 magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) return kNaN;
    const u32 sign = (bits >> 24) & 0x80U;
    u32 code = (magnitude + ((magnitude >> kShift) & 1U) + ((1U << (kShift - 1)) - 1) - kRebias) >> kShift;
    if (magnitude < kSmallestNormal) {
      code = __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(kMagic)) - kMagic;
    }
    if (code >= kOverflow) code = kOverflow;
    if (kSpecials == Specials::nan_at_minus_zero && code == 0) return 0;  // no minus zero
    return static_cast<Storage>(code | sign);
  }
};
using Float8E4M3FN = MiniFloat<3, 7, Specials::nan_at_all_ones, 0x7f, 0x7e>;
using Float8E5M2 = MiniFloat<2, 15, Specials::ieee, 0x7f, 0x7c>;
using Float8E4M3FNUZ = MiniFloat<3, 8, Specials::nan_at_minus_zero, 0x80, 0x80>;
using Float8E5M2FNUZ = MiniFloat<2, 16, Specials::nan_at_minus_zero, 0x80, 0x80>;

/// A bare exponent, 2^(code - 127); 0xff is NaN. Only min and max.
struct Float8E8M0FNU {
  using Storage = u8;
  using Wide = float;
  static __device__ Wide widen(Storage code) {
    if (code == 0xff) return __uint_as_float(0x7fc00000U);
    return __uint_as_float(code == 0 ? 0x00400000U : static_cast<u32>(code) << 23);
  }
  static __device__ Storage narrow(Wide v) { return static_cast<Storage>(__float_as_uint(Float32::narrow(v)) >> 23); }
};

/// Products only: sums of complex numbers are sums of their parts.
template <class Part>
struct Complex {
  struct Storage {
    typename Part::Storage real, imag;
  };
  struct Wide {
    typename Part::Wide real, imag;
  };
  static __device__ Wide widen(Storage v) { return {Part::widen(v.real), Part::widen(v.imag)}; }
  static __device__ Storage narrow(Wide v) { return {Part::narrow(v.real), Part::narrow(v.imag)}; }
};

// ---- operators ------------------------------------------------------------------------------------------------------

struct Sum {
  template <class V>
  static __device__ V apply(V a, V b) {
    return static_cast<V>(a + b);
  }
};
struct Product {
  template <class V>
  static __device__ V apply(V a, V b) {
    if constexpr (requires { a.real; }) {
      return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
    } else {
      return static_cast<V>(a * b);
    }
  }
};
/// A NaN on either side wins; equal keeps the first.
struct Min {
  template <class V>
  static __device__ V apply(V a, V b) {
    return b < a || b != b ? b : a;
  }
};
struct Max {
  template <class V>
  static __device__ V apply(V a, V b) {
    return b > a || b != b ? b : a;
  }
};
struct And {
  template <class V>
  static __device__ V apply(V a, V b) {
    return static_cast<V>(a & b);
  }
};
struct Or {
  template <class V>
  static __device__ V apply(V a, V b) {
    return static_cast<V>(a | b);
  }
};
struct Xor {
  template <class V>
  static __device__ V apply(V a, V b) {
    return static_cast<V>(a ^ b);
  }
};

// ---- loops ----------------------------------------------------------------------------------------------------------

/// Pointers as a value: a function that is not inlined takes them in registers.
template <class Pointer, int N>
struct Pointers {
  Pointer at[N];
  __device__ Pointer operator[](int i) const { return at[i]; }
};

/// to[0..D) = from[0] op from[1] op ..; rounded once. One source is copied bit by bit. All threads of the block take
/// part. A destination may be one of the sources. Where all pointers are alike modulo 16, memory moves in 16-byte
/// vectors; each source is read once, and `kBatch` vectors of a thread are under way together. Not inlined:
/// a Program has many moves of few kinds.
template <class Format, class Op, int D, int N>
class Combine {
  using Storage = typename Format::Storage;
  using To = Pointers<char*, D>;
  using From = Pointers<const char*, N>;
  static constexpr int kLanes = 16 / sizeof(Storage);
  static constexpr int kBatch = N == 1 ? 4 : N == 2 ? 2 : 1;
  static constexpr int kTogether = N < 8 ? N : 8;  // sources in registers

 public:
  static __device__ __noinline__ void run(To to, From from, long long bytes) {
    if (D == 1 && N == 1 && to[0] == from[0]) return;
    const u64 phase = reinterpret_cast<u64>(to[0]) & 15;
    u64 unlike = 0;
#pragma unroll
    for (int d = 1; d < D; ++d) unlike |= (reinterpret_cast<u64>(to[d]) & 15) ^ phase;
#pragma unroll
    for (int k = 0; k < N; ++k) unlike |= (reinterpret_cast<u64>(from[k]) & 15) ^ phase;
    long long begin = bytes, vectors = 0;  // what lies before `begin` and after the vectors goes element by element
    if (unlike == 0 && phase % sizeof(Storage) == 0) {
      begin = (16 - phase) & 15;
      begin = begin < bytes ? begin : bytes;
      vectors = (bytes - begin) / 16;
    }
    elements(to, from, 0, begin);
    const int threads = block_threads();
    long long i = thread();
    for (; i + (kBatch - 1) * threads < vectors; i += kBatch * threads) batch<kBatch>(to, from, begin + i * 16);
    for (; i < vectors; i += threads) batch<1>(to, from, begin + i * 16);
    elements(to, from, begin + vectors * 16, bytes);
  }

 private:
  static __device__ void elements(const To& to, const From& from, long long begin, long long end) {
    for (long long at = begin + thread() * static_cast<int>(sizeof(Storage)); at < end;
         at += block_threads() * static_cast<int>(sizeof(Storage))) {
      Storage value = *reinterpret_cast<const Storage*>(from[0] + at);
      if constexpr (N > 1) {
        auto sum = Format::widen(value);
#pragma unroll
        for (int k = 1; k < N; ++k) {
          sum = Op::apply(sum, Format::widen(*reinterpret_cast<const Storage*>(from[k] + at)));
        }
        value = Format::narrow(sum);
      }
#pragma unroll
      for (int d = 0; d < D; ++d) *reinterpret_cast<Storage*>(to[d] + at) = value;
    }
  }

  /// `kCount` vectors, `block_threads()` vectors apart.
  template <int kCount>
  static __device__ void batch(const To& to, const From& from, long long at) {
    const long long apart = 16LL * block_threads();
    uint4 result[kCount];
    if constexpr (N == 1) {
#pragma unroll
      for (int j = 0; j < kCount; ++j) result[j] = *reinterpret_cast<const uint4*>(from[0] + at + j * apart);
    } else {
      typename Format::Wide sum[kCount][kLanes];
#pragma unroll
      for (int first = 0; first < N; first += kTogether) {
        uint4 read[kTogether][kCount];
#pragma unroll
        for (int k = 0; k < kTogether; ++k) {
#pragma unroll
          for (int j = 0; j < kCount; ++j) {
            if (first + k < N) read[k][j] = *reinterpret_cast<const uint4*>(from[first + k] + at + j * apart);
          }
        }
#pragma unroll
        for (int k = 0; k < kTogether; ++k) {
#pragma unroll
          for (int j = 0; j < kCount; ++j) {
            if (first + k < N) add(sum[j], read[k][j], first + k == 0);
          }
        }
      }
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        Storage packed[kLanes];
#pragma unroll
        for (int l = 0; l < kLanes; ++l) packed[l] = Format::narrow(sum[j][l]);
        memcpy(&result[j], packed, 16);
      }
    }
#pragma unroll
    for (int d = 0; d < D; ++d) {
#pragma unroll
      for (int j = 0; j < kCount; ++j) *reinterpret_cast<uint4*>(to[d] + at + j * apart) = result[j];
    }
  }

  static __device__ void add(typename Format::Wide (&sum)[kLanes], const uint4& vector, bool is_first) {
    Storage values[kLanes];
    memcpy(values, &vector, 16);
#pragma unroll
    for (int l = 0; l < kLanes; ++l) {
      const auto value = Format::widen(values[l]);
      sum[l] = is_first ? value : Op::apply(sum[l], value);
    }
  }
};

}  // namespace syntony
