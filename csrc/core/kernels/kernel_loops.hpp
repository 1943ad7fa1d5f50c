// The loops of every instruction set: operators on vectors, one n-ary reduction, one map, and the table made of them.
//
// A reduction of k operands walks memory once, a block of four registers at a time:
//
//     sources[0]  [ block ] ------> acc
//     sources[1]  [ block ] --op--> acc          each source is read once and dst written once, whatever k is;
//        ...                                     all k blocks are read before dst's is written, so dst may be
//     sources[k-1][ block ] --op--> acc ---> dst any of the sources
//
// The last, partial block (and a first one, up to dst's first cache line) goes through a zero-padded copy, so every
// element sees the same instructions and the result does not depend on its position in the buffer. Compile with
// -ffp-contract=off: a fused multiply-add in only one of the tables would make ranks disagree.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "core/kernels/fetch_to_write.hpp"
#include "core/kernels/kernel_formats.hpp"
#include "core/kernels/kernel_table.hpp"
#include "core/sizes.hpp"

namespace syntony::kernels {

struct Sum {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return a + b;
  }
};
struct Product {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return a * b;
  }
};
/// A NaN on either side wins (tested by b != b, which the compiler drops for integers); of equals the first is kept.
struct Min {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return ((b < a) | (b != b)) ? b : a;
  }
};
struct Max {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return ((b > a) | (b != b)) ? b : a;
  }
};
struct And {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return a & b;
  }
};
struct Or {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return a | b;
  }
};
struct Xor {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return a ^ b;
  }
};

template <class Op, class V>
[[gnu::always_inline]] inline V combine(V a, V b) {
  return Op::apply(a, b);
}
template <class Op, class V, std::size_t N>
[[gnu::always_inline]] inline Pack<V, N> combine(Pack<V, N> a, Pack<V, N> b) {
  each<N>([&](std::size_t j) __attribute__((always_inline)) { a.part[j] = Op::apply(a.part[j], b.part[j]); });
  return a;
}
/// Only the product mixes the parts of a complex number; a sum adds them separately.
template <class Op, class V>
[[gnu::always_inline]] inline Complex<V> combine(Complex<V> a, Complex<V> b) {
  static_assert(std::is_same_v<Op, Product>);
  return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
}

/// Four registers of elements, widened.
template <class Format>
class Block {
  static constexpr std::size_t kParts = 4 / Format::kVectors;

 public:
  static constexpr std::size_t kBytes = kParts * Format::kBytes;

  [[gnu::always_inline]] explicit Block(const std::byte* from) {
    each<kParts>([&](std::size_t i)
                     __attribute__((always_inline)) { part_[i] = Format::load(from + i * Format::kBytes); });
  }
  /// The first `bytes` of a block, followed by zeros.
  [[gnu::always_inline]] static Block partial(const std::byte* from, std::size_t bytes) {
    std::byte padded[kBytes] = {};
    __builtin_memcpy(padded, from, bytes);
    return Block(padded);
  }
  template <class F>
  [[gnu::always_inline]] void map(F f) {
    each<kParts>([&](std::size_t i) __attribute__((always_inline)) { part_[i] = f(part_[i]); });
  }
  template <class Op>
  [[gnu::always_inline]] void combine_with(const Block& other) {
    each<kParts>([&](std::size_t i)
                     __attribute__((always_inline)) { part_[i] = combine<Op>(part_[i], other.part_[i]); });
  }
  [[gnu::always_inline]] void store(std::byte* to) const {
    each<kParts>([&](std::size_t i)
                     __attribute__((always_inline)) { Format::store(to + i * Format::kBytes, part_[i]); });
  }
  [[gnu::always_inline]] void store_partial(std::byte* to, std::size_t bytes) const {
    std::byte padded[kBytes];
    store(padded);
    __builtin_memcpy(to, padded, bytes);
  }

 private:
  typename Format::Wide part_[kParts];
};

constexpr std::size_t kShort = 2048;
// If a sum is written to one of its operands, each line is read before it is written. A line that a peer has read must
// be taken back first, and stores wait for that one after another unless ownership is requested early: 6.6 ns per line,
// and 3.2 with this (256 KiB, two cores of a Sapphire Rapids). Into other memory it is not requested, as that delays
// reading what a peer has written: all_reduce of 64 KiB 6.8 us with and 5.6 without, reduce_scatter of 256 KiB 14.8 and
// 10.4 (two cores of a Zen 5 that exchange lines slowly).
constexpr std::size_t kAhead = 48 * kCacheLine;

/// Whole elements before the first line of `dst`, so that stores do not straddle lines; 0 if that is not a whole
/// number.
inline std::size_t bytes_before_line(const std::byte* dst) {
  constexpr std::size_t kLongestElement = 16;
  const std::size_t bytes = (kCacheLine - reinterpret_cast<std::uintptr_t>(dst) % kCacheLine) % kCacheLine;
  return bytes % kLongestElement == 0 ? bytes : 0;
}

/// How a reduction writes its blocks: through the caches,
struct ThroughCaches {
  static bool fetches(const std::byte* dst, const std::byte* const* sources, std::size_t operands) {
    return std::find(sources, sources + operands, dst) != sources + operands;
  }
  [[gnu::always_inline]] static void fetch(std::byte* dst, const std::byte* const* /*sources*/, std::size_t line) {
    fetch_to_write(dst + line);
  }
  template <class B>
  [[gnu::always_inline]] static void store(std::byte* to, const B& block) {
    block.store(to);
  }
  static void finish() {}
};

/// or past them, by an instruction set that has stream() for a register's bytes, and finish() to order such stores
/// before later ones. Then nothing hides the latency of loads, so the sources are fetched early (a reduction has two at
/// least).
template <class Isa>
struct PastCaches {
  static bool fetches(const std::byte* /*dst*/, const std::byte* const* /*sources*/, std::size_t /*operands*/) {
    return true;
  }
  [[gnu::always_inline]] static void fetch(std::byte* /*dst*/, const std::byte* const* sources, std::size_t line) {
    __builtin_prefetch(sources[0] + line);
    __builtin_prefetch(sources[1] + line);
  }
  template <class B>
  [[gnu::always_inline]] static void store(std::byte* to, const B& block) {
    if (reinterpret_cast<std::uintptr_t>(to) % kCacheLine != 0) return block.store(to);
    alignas(kCacheLine) std::byte bytes[B::kBytes];
    block.store(bytes);
    for (std::size_t at = 0; at < B::kBytes; at += Isa::kBytes) Isa::stream(to + at, bytes + at);
  }
  static void finish() { Isa::finish(); }
};

/// The bytes of a block, as they are.
template <std::size_t kCount>
struct alignas(kCacheLine) PlainBlock {
  static constexpr std::size_t kBytes = kCount;
  std::byte bytes[kBytes];
  [[gnu::always_inline]] explicit PlainBlock(const std::byte* from) { __builtin_memcpy(bytes, from, kBytes); }
  [[gnu::always_inline]] void store(std::byte* to) const { __builtin_memcpy(to, bytes, kBytes); }
};

template <class Stores, std::size_t kBytes>
[[gnu::always_inline]] inline void move_block(const Beside& beside, std::size_t here, std::size_t ahead) {
  for (const auto& moves : {beside.shown, beside.taken}) {
    for (const Beside::Move& move : moves) {
      for (std::size_t line = here + ahead; line < here + ahead + kBytes; line += kCacheLine) {
        __builtin_prefetch(move.from + line);
      }
    }
  }
  for (const auto& [to, from] : beside.shown) PlainBlock<kBytes>(from + here).store(to + here);
  for (const auto& [to, from] : beside.taken) Stores::store(to + here, PlainBlock<kBytes>(from + here));
}

template <class Format, class Op, class Stores>
void reduce_loop(std::byte* dst, const std::byte* const* sources, std::size_t operands, std::size_t bytes,
                 std::size_t pages, const Beside& beside) {
  using B = Block<Format>;
  const auto partial = [&](std::size_t at, std::size_t part) {
    B acc = B::partial(sources[0] + at, part);
    for (std::size_t k = 1; k < operands; ++k) acc.template combine_with<Op>(B::partial(sources[k] + at, part));
    acc.store_partial(dst + at, part);
    if (beside.also != nullptr) acc.store_partial(beside.also + at, part);
    for (std::byte* const to : beside.too) acc.store_partial(to + at, part);
    for (const auto& moves : {beside.shown, beside.taken}) {
      for (const Beside::Move& move : moves) __builtin_memcpy(move.to + at, move.from + at, part);
    }
  };
  const bool moves = !beside.shown.empty() || !beside.taken.empty();
  std::size_t at = 0;
  const std::size_t lead = bytes_before_line(dst);
  if (lead != 0 && lead < B::kBytes && bytes > kShort) partial(0, at = lead);
  const std::size_t fetched = Stores::fetches(dst, sources, operands) ? bytes : 0;
  const auto block = [&](std::size_t here, std::size_t ahead) __attribute__((always_inline)) {
    for (std::size_t line = here + ahead; line < std::min(fetched, here + ahead + B::kBytes); line += kCacheLine) {
      Stores::fetch(dst, sources, line);
    }
    B acc(sources[0] + here);
    for (std::size_t k = 1; k < operands; ++k) acc.template combine_with<Op>(B(sources[k] + here));
    Stores::store(dst + here, acc);
    if (beside.also != nullptr) acc.store(beside.also + here);
    for (std::byte* const to : beside.too) Stores::store(to + here, acc);
    if (moves) move_block<Stores, B::kBytes>(beside, here, ahead);
  };
  static_assert(kPage % B::kBytes == 0);
  for (; pages > 1 && bytes - at >= pages * kPage; at += pages * kPage) {
    for (std::size_t into = 0; into < kPage; into += B::kBytes) {
      for (std::size_t page = 0; page < pages; ++page)
        block(at + page * kPage + into, kAhead / pages / kCacheLine * kCacheLine);
    }
  }
  for (; bytes - at >= B::kBytes; at += B::kBytes) block(at, kAhead);
  if (const std::size_t rest = bytes - at; rest != 0) partial(at, rest);
  Stores::finish();
}

template <class Format, class F>
[[gnu::always_inline]] inline void map_loop(std::byte* dst, const std::byte* src, std::size_t bytes, F f) {
  using B = Block<Format>;
  std::size_t at = 0;
  for (; bytes - at >= B::kBytes; at += B::kBytes) {
    B block(src + at);
    block.map(f);
    block.store(dst + at);
  }
  if (const std::size_t rest = bytes - at; rest != 0) {
    B block = B::partial(src + at, rest);
    block.map(f);
    block.store_partial(dst + at, rest);
  }
}

/// The operand is rounded to the type of the arithmetic.
template <class Op, class V>
[[gnu::always_inline]] inline V with_scalar(V v, double operand) {
  using T = std::remove_cvref_t<decltype(v[0])>;
  return Op::apply(v, V{} + static_cast<T>(operand));
}
template <class Op, class V, std::size_t N>
[[gnu::always_inline]] inline Pack<V, N> with_scalar(Pack<V, N> v, double operand) {
  each<N>([&](std::size_t j) __attribute__((always_inline)) { v.part[j] = with_scalar<Op>(v.part[j], operand); });
  return v;
}

struct Quotient {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return a / b;
  }
};

template <class Format, class Op>
void scalar_loop(std::byte* dst, const std::byte* src, std::size_t bytes, double operand) {
  map_loop<Format>(dst, src, bytes,
                   [operand](auto v) __attribute__((always_inline)) { return with_scalar<Op>(v, operand); });
}

/// Fills the rows of a table, one kind of element at a time.
template <class Isa>
class TableBuilder {
 public:
  explicit constexpr TableBuilder(std::string_view isa) : table_{isa, {}, {}, {}, {}} {}

  /// Sums, products and bitwise operations ignore the sign, so they are computed on `Unsigned`, where wrapping is
  /// defined.
  template <class T>
  constexpr TableBuilder& integer(DType dtype) {
    using Unsigned = Integer<Isa, std::make_unsigned_t<T>>;
    set<Unsigned, Sum>(dtype, ReduceOp::sum);
    set<Unsigned, Product>(dtype, ReduceOp::product);
    set<Integer<Isa, T>, Min>(dtype, ReduceOp::min);
    set<Integer<Isa, T>, Max>(dtype, ReduceOp::max);
    return bits<Integer<Isa, std::uint64_t>>(dtype);
  }

  constexpr TableBuilder& boolean(DType dtype) {
    using Format = Boolean<Isa>;
    set<Format, Or>(dtype, ReduceOp::sum);
    set<Format, Or>(dtype, ReduceOp::max);
    set<Format, And>(dtype, ReduceOp::product);
    set<Format, And>(dtype, ReduceOp::min);
    return bits<Format>(dtype);
  }

  template <class Format>
  constexpr TableBuilder& real(DType dtype) {
    set<Format, Sum>(dtype, ReduceOp::sum);
    set<Format, Product>(dtype, ReduceOp::product);
    order<Format>(dtype);
    return scalars<Format>(dtype);
  }

  template <class Real>
  constexpr TableBuilder& complex(DType dtype) {
    set<Real, Sum>(dtype, ReduceOp::sum);
    set<ComplexOf<Real>, Product>(dtype, ReduceOp::product);
    return scalars<Real>(dtype);
  }

  template <class Format>
  constexpr TableBuilder& order(DType dtype) {
    set<Format, Min>(dtype, ReduceOp::min);
    set<Format, Max>(dtype, ReduceOp::max);
    return *this;
  }

  [[nodiscard]] constexpr KernelTable table() const { return table_; }

 private:
  template <class Format, class Op>
  constexpr void set(DType dtype, ReduceOp op) {
    const auto type = static_cast<std::size_t>(dtype), operation = static_cast<std::size_t>(op);
    table_.reduce[type][operation] = &reduce_loop<Format, Op, ThroughCaches>;
    if constexpr (requires(std::byte* to) { Isa::stream(to, to); }) {
      table_.reduce_past[type][operation] = &reduce_loop<Format, Op, PastCaches<Isa>>;
    } else {
      table_.reduce_past[type][operation] = table_.reduce[type][operation];
    }
  }

  template <class Format>
  constexpr TableBuilder& bits(DType dtype) {
    set<Format, And>(dtype, ReduceOp::band);
    set<Format, Or>(dtype, ReduceOp::bor);
    set<Format, Xor>(dtype, ReduceOp::bxor);
    return *this;
  }

  template <class Format>
  constexpr TableBuilder& scalars(DType dtype) {
    table_.scale[static_cast<std::size_t>(dtype)] = &scalar_loop<Format, Product>;
    table_.divide[static_cast<std::size_t>(dtype)] = &scalar_loop<Format, Quotient>;
    return *this;
  }

  KernelTable table_;
};

/// float8_e8m0fnu holds scales: powers of two without zero or sign. They can be ordered, but not summed.
template <class Isa>
consteval KernelTable make_kernels(std::string_view isa) noexcept {
  return TableBuilder<Isa>(isa)
      .template integer<std::uint8_t>(DType::uint8)
      .template integer<std::int8_t>(DType::int8)
      .template integer<std::uint16_t>(DType::uint16)
      .template integer<std::int16_t>(DType::int16)
      .template integer<std::uint32_t>(DType::uint32)
      .template integer<std::int32_t>(DType::int32)
      .template integer<std::uint64_t>(DType::uint64)
      .template integer<std::int64_t>(DType::int64)
      .template real<Float16<Isa>>(DType::float16)
      .template real<BFloat16<Isa>>(DType::bfloat16)
      .template real<Float<Isa, float>>(DType::float32)
      .template real<Float<Isa, double>>(DType::float64)
      .boolean(DType::boolean)
      .template complex<Float16<Isa>>(DType::complex32)
      .template complex<Float<Isa, float>>(DType::complex64)
      .template complex<Float<Isa, double>>(DType::complex128)
      .template real<MiniFloat<Isa, LayoutE4M3FN>>(DType::float8_e4m3fn)
      .template real<MiniFloat<Isa, LayoutE5M2>>(DType::float8_e5m2)
      .template real<MiniFloat<Isa, LayoutE4M3FNUZ>>(DType::float8_e4m3fnuz)
      .template real<MiniFloat<Isa, LayoutE5M2FNUZ>>(DType::float8_e5m2fnuz)
      .template order<Exponent8<Isa>>(DType::float8_e8m0fnu)
      .table();
}

}  // namespace syntony::kernels
