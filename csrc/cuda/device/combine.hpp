// destinations[..] = sources[0] op sources[1] op ..: what the threads of a block do together, 16 bytes at a time.
//
//     head             body: vectors of 16 bytes                      tail
//     | e e e | vvvv vvvv vvvv vvvv vvvv vvvv vvvv vvvv ..  | e e |
//              thread 0 1 2 3 .. 0 1 2 3 ..
//
// Vectors need all pointers to be equally far from a 16-byte boundary; where they are not, all is done by elements.
// A destination may be one of the sources: every element is read from all sources before it is written, by one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/formats.hpp"
#include "cuda/device/kernel_form.hpp"
#include "cuda/device/qualifiers.hpp"

namespace syntony::cuda {

/// What one piece of an instruction does, for all threads of a block to read.
struct Combination {
  std::byte* pointers[kMostEnds];  // the sources, then the destinations; without messages that travel in lines
  std::uint32_t sources = 0;
  std::uint32_t destinations = 0;
  std::uint64_t bytes = 0;
  // A message in lines (ll, ll128) is the first source and a further destination.
  const std::byte* lines_in = nullptr;
  std::byte* lines_out = nullptr;
  std::uint64_t flag_in = 0;
  std::uint64_t flag_out = 0;
  std::uint64_t lines_to_fill = 0;  // of lines_out, at least; see low_latency.hpp

  [[nodiscard]] SYNTONY_DEVICE const std::byte* source(std::uint32_t i) const { return pointers[i]; }
  [[nodiscard]] SYNTONY_DEVICE std::byte* destination(std::uint32_t i) const { return pointers[sources + i]; }
};

struct alignas(16) Vector {
  std::uint64_t words[2];
};

/// A sum that the compiler knows to be one, for the loops that must be fast.
struct KnownSum {
  SYNTONY_DEVICE constexpr operator ReduceOp() const { return ReduceOp::sum; }  // NOLINT: that is its purpose
};

template <class Format, std::uint32_t kVectors>
struct Accumulator {
  static constexpr std::uint32_t kElements = sizeof(Vector) / sizeof(typename Format::Storage);
  struct Elements {
    typename Format::Storage e[kElements];
  };
  typename Format::Wide wide[kVectors][kElements];

  SYNTONY_DEVICE void set(std::uint32_t v, const Vector& vector) {
    const Elements elements = bits_as<Elements>(vector);
    SYNTONY_UNROLL
    for (std::uint32_t i = 0; i < kElements; ++i) wide[v][i] = Format::widen(elements.e[i]);
  }
  template <class Op>
  SYNTONY_DEVICE void add(Op op, std::uint32_t v, const Vector& vector) {
    const Elements elements = bits_as<Elements>(vector);
    SYNTONY_UNROLL
    for (std::uint32_t i = 0; i < kElements; ++i) {
      wide[v][i] = Format::apply(op, wide[v][i], Format::widen(elements.e[i]));
    }
  }
  [[nodiscard]] SYNTONY_DEVICE Vector get(std::uint32_t v) const {
    Elements elements;
    SYNTONY_UNROLL
    for (std::uint32_t i = 0; i < kElements; ++i) elements.e[i] = Format::narrow(wide[v][i]);
    return bits_as<Vector>(elements);
  }
};

/// kVectors vectors of each source, `stride` bytes apart: so many loads are on their way at once.
template <class Format, std::uint32_t kVectors, class Machine, class Op>
SYNTONY_DEVICE void combine_vectors(const Combination& combination, Op op, std::uint64_t at, std::uint64_t stride) {
  Accumulator<Format, kVectors> sum;
  Vector loaded[kVectors];
  SYNTONY_UNROLL
  for (std::uint32_t v = 0; v < kVectors; ++v) loaded[v] = Machine::load(combination.source(0) + at + v * stride);
  SYNTONY_UNROLL
  for (std::uint32_t v = 0; v < kVectors; ++v) sum.set(v, loaded[v]);
  for (std::uint32_t k = 1; k < combination.sources; ++k) {
    SYNTONY_UNROLL
    for (std::uint32_t v = 0; v < kVectors; ++v) loaded[v] = Machine::load(combination.source(k) + at + v * stride);
    SYNTONY_UNROLL
    for (std::uint32_t v = 0; v < kVectors; ++v) sum.add(op, v, loaded[v]);
  }
  SYNTONY_UNROLL
  for (std::uint32_t v = 0; v < kVectors; ++v) loaded[v] = sum.get(v);
  for (std::uint32_t d = 0; d < combination.destinations; ++d) {
    SYNTONY_UNROLL
    for (std::uint32_t v = 0; v < kVectors; ++v)
      Machine::store(combination.destination(d) + at + v * stride, loaded[v]);
  }
}

template <std::uint32_t kVectors, class Machine>
SYNTONY_DEVICE void copy_vectors(const Combination& combination, std::uint64_t at, std::uint64_t stride) {
  Vector loaded[kVectors];
  SYNTONY_UNROLL
  for (std::uint32_t v = 0; v < kVectors; ++v) loaded[v] = Machine::load(combination.source(0) + at + v * stride);
  for (std::uint32_t d = 0; d < combination.destinations; ++d) {
    SYNTONY_UNROLL
    for (std::uint32_t v = 0; v < kVectors; ++v)
      Machine::store(combination.destination(d) + at + v * stride, loaded[v]);
  }
}

template <class Storage>
SYNTONY_DEVICE Storage load_element(const std::byte* from) {
  Storage element;
  __builtin_memcpy(&element, __builtin_assume_aligned(from, sizeof element), sizeof element);
  return element;
}
template <class Storage>
SYNTONY_DEVICE void store_element(std::byte* to, Storage element) {
  __builtin_memcpy(__builtin_assume_aligned(to, sizeof element), &element, sizeof element);
}

/// Elements [from, to) bytes, thread by thread.
template <class Format, class Machine, class Op>
SYNTONY_DEVICE void combine_elements(const Machine& machine, const Combination& combination, Op op, std::uint64_t from,
                                     std::uint64_t to) {
  using Storage = typename Format::Storage;
  const std::uint64_t step = machine.threads() * sizeof(Storage);
  for (std::uint64_t at = from + machine.thread() * sizeof(Storage); at < to; at += step) {
    auto sum = Format::widen(load_element<Storage>(combination.source(0) + at));
    for (std::uint32_t k = 1; k < combination.sources; ++k) {
      sum = Format::apply(op, sum, Format::widen(load_element<Storage>(combination.source(k) + at)));
    }
    const Storage element = Format::narrow(sum);
    for (std::uint32_t d = 0; d < combination.destinations; ++d)
      store_element(combination.destination(d) + at, element);
  }
}

template <class Machine>
SYNTONY_DEVICE void copy_bytes(const Machine& machine, const Combination& combination, std::uint64_t from,
                               std::uint64_t to) {
  for (std::uint64_t at = from + machine.thread(); at < to; at += machine.threads()) {
    const std::byte byte = combination.source(0)[at];
    for (std::uint32_t d = 0; d < combination.destinations; ++d) combination.destination(d)[at] = byte;
  }
}

/// The bytes before the first boundary, or `none` where the pointers do not share one.
[[nodiscard]] SYNTONY_DEVICE std::uint64_t bytes_before_vectors(const Combination& combination, std::uint64_t none) {
  constexpr std::uintptr_t kMask = sizeof(Vector) - 1;
  const auto first = reinterpret_cast<std::uintptr_t>(combination.pointers[0]) & kMask;
  for (std::uint32_t i = 1; i < combination.sources + combination.destinations; ++i) {
    if ((reinterpret_cast<std::uintptr_t>(combination.pointers[i]) & kMask) != first) return none;
  }
  const std::uint64_t before = (sizeof(Vector) - first) & kMask;
  return before < none ? before : none;
}

/// `vectors(at, stride)` for whole batches, `vector(at, stride)` for the rest.
template <std::uint32_t kBatch, class Machine, class Batch, class One>
SYNTONY_DEVICE void each_vector(const Machine& machine, std::uint64_t from, std::uint64_t to, Batch vectors,
                                One vector) {
  const std::uint64_t stride = machine.threads() * sizeof(Vector);
  std::uint64_t at = from + machine.thread() * sizeof(Vector);
  for (; at + (kBatch - 1) * stride < to; at += kBatch * stride) vectors(at, stride);
  for (; at < to; at += stride) vector(at, stride);
}

/// Sums keep kBatch vectors of every source on their way.
template <class Format, std::uint32_t kBatch, class Machine, class Op>
SYNTONY_CALLED void combine_as(const Machine& machine, const Combination& combination, Op op) {
  const std::uint64_t head = bytes_before_vectors(combination, combination.bytes);
  const std::uint64_t end = head + (combination.bytes - head) / sizeof(Vector) * sizeof(Vector);
  combine_elements<Format>(machine, combination, op, 0, head);
  each_vector<kBatch>(
      machine, head, end,
      [&](std::uint64_t at, std::uint64_t stride) {
        combine_vectors<Format, kBatch, Machine>(combination, op, at, stride);
      },
      [&](std::uint64_t at, std::uint64_t stride) {
        if constexpr (kBatch > 1) combine_vectors<Format, 1, Machine>(combination, op, at, stride);
      });
  combine_elements<Format>(machine, combination, op, end, combination.bytes);
}

/// One source: bytes, whatever they mean. In place there is nothing to do, and peers may be reading.
template <class Machine>
SYNTONY_CALLED void copy(const Machine& machine, const Combination& combination) {
  if (combination.destinations == 1 && combination.source(0) == combination.destination(0)) return;
  constexpr std::uint32_t kBatch = 4;
  const std::uint64_t head = bytes_before_vectors(combination, combination.bytes);
  const std::uint64_t end = head + (combination.bytes - head) / sizeof(Vector) * sizeof(Vector);
  copy_bytes(machine, combination, 0, head);
  each_vector<kBatch>(
      machine, head, end,
      [&](std::uint64_t at, std::uint64_t stride) { copy_vectors<kBatch, Machine>(combination, at, stride); },
      [&](std::uint64_t at, std::uint64_t stride) { copy_vectors<1, Machine>(combination, at, stride); });
  copy_bytes(machine, combination, end, combination.bytes);
}

template <class Machine>
SYNTONY_DEVICE void combine(const Machine& machine, DType dtype, ReduceOp op, const Combination& combination) {
  if (combination.sources == 1) return copy(machine, combination);
  if (op == ReduceOp::sum) {
    visit_format(unsigned_of(dtype), [&](auto format) {
      using Format = decltype(format);
      // As many vectors at once as leave the widened sum in registers.
      constexpr std::uint32_t kBatch = sizeof(typename Format::Storage) >= 4 ? 4 : sizeof(typename Format::Storage);
      combine_as<Format, kBatch>(machine, combination, KnownSum{});
    });
  } else {
    // Rare, so they are short: vectors one at a time, and elements one at a time where a vector has sixteen.
    visit_format(dtype, [&](auto format) {
      using Format = decltype(format);
      if constexpr (sizeof(typename Format::Storage) == 1) {
        combine_elements<Format>(machine, combination, op, 0, combination.bytes);
      } else {
        combine_as<Format, 1>(machine, combination, op);
      }
    });
  }
}

}  // namespace syntony::cuda
