// destinations[..] = sources[0] op sources[1] op ..: computed jointly by the threads of a block, 16 bytes at a time.
//
//     head             body: vectors of 16 bytes                      tail
//     | e e e | vvvv vvvv vvvv vvvv vvvv vvvv vvvv vvvv ..  | e e |
//              thread 0 1 2 3 .. 0 1 2 3 ..
//
// Vectors need all pointers at equal distance from a 16-byte boundary; otherwise everything is done by elements.
// A destination may be one of the sources: every element is read from all sources before it is written, by one thread.
#pragma once

#include "cuda/device/formats.hpp"
#include "cuda/device/qualifiers.hpp"

namespace syntony::cuda {

/// Ends whose number is known at compile time, so loops over them are unrolled and the pointers stay in registers.
template <std::uint32_t kDestinations, std::uint32_t kSources>
struct KnownEnds {
  static constexpr std::uint32_t sources = kSources, destinations = kDestinations;
  std::byte* pointers[kSources + kDestinations];
  std::uint64_t bytes;

  [[nodiscard]] SYNTONY_DEVICE const std::byte* source(std::uint32_t i) const { return pointers[i]; }
  [[nodiscard]] SYNTONY_DEVICE std::byte* destination(std::uint32_t i) const { return pointers[kSources + i]; }
};

struct alignas(16) Vector {
  std::uint64_t words[2];
};

/// An operator known at compile time, for the loops that must be fast.
template <ReduceOp kOp>
struct Known {
  SYNTONY_DEVICE constexpr operator ReduceOp() const { return kOp; }  // NOLINT: that is its purpose
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

/// kVectors vectors of each source, `stride` bytes apart, with all their loads in flight at once.
template <class Format, std::uint32_t kVectors, class Machine, class Ends, class Op>
SYNTONY_DEVICE void combine_vectors(const Ends& ends, Op op, std::uint64_t at, std::uint64_t stride) {
  Accumulator<Format, kVectors> sum;
  Vector loaded[kVectors];
  SYNTONY_UNROLL
  for (std::uint32_t v = 0; v < kVectors; ++v) loaded[v] = Machine::load(ends.source(0) + at + v * stride);
  SYNTONY_UNROLL
  for (std::uint32_t v = 0; v < kVectors; ++v) sum.set(v, loaded[v]);
  SYNTONY_UNROLL
  for (std::uint32_t k = 1; k < ends.sources; ++k) {
    SYNTONY_UNROLL
    for (std::uint32_t v = 0; v < kVectors; ++v) loaded[v] = Machine::load(ends.source(k) + at + v * stride);
    SYNTONY_UNROLL
    for (std::uint32_t v = 0; v < kVectors; ++v) sum.add(op, v, loaded[v]);
  }
  SYNTONY_UNROLL
  for (std::uint32_t v = 0; v < kVectors; ++v) loaded[v] = sum.get(v);
  SYNTONY_UNROLL
  for (std::uint32_t d = 0; d < ends.destinations; ++d) {
    SYNTONY_UNROLL
    for (std::uint32_t v = 0; v < kVectors; ++v) Machine::store(ends.destination(d) + at + v * stride, loaded[v]);
  }
}

template <std::uint32_t kVectors, class Machine, class Ends>
SYNTONY_DEVICE void copy_vectors(const Ends& ends, std::uint64_t at, std::uint64_t stride) {
  Vector loaded[kVectors];
  SYNTONY_UNROLL
  for (std::uint32_t v = 0; v < kVectors; ++v) loaded[v] = Machine::load(ends.source(0) + at + v * stride);
  SYNTONY_UNROLL
  for (std::uint32_t d = 0; d < ends.destinations; ++d) {
    SYNTONY_UNROLL
    for (std::uint32_t v = 0; v < kVectors; ++v) Machine::store(ends.destination(d) + at + v * stride, loaded[v]);
  }
}

template <class Storage>
SYNTONY_DEVICE Storage load_element(const std::byte* from) {
  Storage element;
  memcpy(&element, __builtin_assume_aligned(from, alignof(Storage)), sizeof element);
  return element;
}
template <class Storage>
SYNTONY_DEVICE void store_element(std::byte* to, Storage element) {
  memcpy(__builtin_assume_aligned(to, alignof(Storage)), &element, sizeof element);
}

/// Elements in bytes [from, to), thread by thread.
template <class Format, class Machine, class Ends, class Op>
SYNTONY_DEVICE void combine_elements(const Machine& machine, const Ends& ends, Op op, std::uint64_t from,
                                     std::uint64_t to) {
  using Storage = typename Format::Storage;
  const std::uint64_t step = machine.threads() * sizeof(Storage);
  for (std::uint64_t at = from + machine.thread() * sizeof(Storage); at < to; at += step) {
    auto sum = Format::widen(load_element<Storage>(ends.source(0) + at));
    SYNTONY_UNROLL
    for (std::uint32_t k = 1; k < ends.sources; ++k) {
      sum = Format::apply(op, sum, Format::widen(load_element<Storage>(ends.source(k) + at)));
    }
    const Storage element = Format::narrow(sum);
    SYNTONY_UNROLL
    for (std::uint32_t d = 0; d < ends.destinations; ++d) store_element(ends.destination(d) + at, element);
  }
}

template <class Machine, class Ends>
SYNTONY_DEVICE void copy_bytes(const Machine& machine, const Ends& ends, std::uint64_t from, std::uint64_t to) {
  for (std::uint64_t at = from + machine.thread(); at < to; at += machine.threads()) {
    const std::byte byte = ends.source(0)[at];
    for (std::uint32_t d = 0; d < ends.destinations; ++d) ends.destination(d)[at] = byte;
  }
}

/// The bytes before the first boundary, or all if the pointers do not share one, or not between two elements.
template <std::uint64_t kElement, class Ends>
[[nodiscard]] SYNTONY_DEVICE std::uint64_t bytes_before_vectors(const Ends& ends) {
  constexpr std::uintptr_t kMask = sizeof(Vector) - 1;
  const auto first = reinterpret_cast<std::uintptr_t>(ends.pointers[0]) & kMask;
  std::uintptr_t unlike = first % kElement;
  SYNTONY_UNROLL
  for (std::uint32_t i = 1; i < ends.sources + ends.destinations; ++i) {
    unlike |= (reinterpret_cast<std::uintptr_t>(ends.pointers[i]) & kMask) ^ first;
  }
  const std::uint64_t before = (sizeof(Vector) - first) & kMask;
  return unlike == 0 && before < ends.bytes ? before : ends.bytes;
}

/// Calls `vectors(at, stride)` for whole batches, `vector(at, stride)` for the rest.
template <std::uint32_t kBatch, class Machine, class Batch, class One>
SYNTONY_DEVICE void each_vector(const Machine& machine, std::uint64_t from, std::uint64_t to, Batch vectors,
                                One vector) {
  const std::uint64_t stride = machine.threads() * sizeof(Vector);
  std::uint64_t at = from + machine.thread() * sizeof(Vector);
  for (; at + (kBatch - 1) * stride < to; at += kBatch * stride) vectors(at, stride);
  for (; at < to; at += stride) vector(at, stride);
}

/// Sums with kBatch vectors of every source in flight.
template <class Format, std::uint32_t kBatch, class Machine, class Ends, class Op>
SYNTONY_CALLED void combine_as(const Machine& machine, const Ends& ends, Op op) {
  const std::uint64_t head = bytes_before_vectors<sizeof(typename Format::Storage)>(ends);
  const std::uint64_t end = head + (ends.bytes - head) / sizeof(Vector) * sizeof(Vector);
  combine_elements<Format>(machine, ends, op, 0, head);
  each_vector<kBatch>(
      machine, head, end,
      [&](std::uint64_t at, std::uint64_t stride) { combine_vectors<Format, kBatch, Machine>(ends, op, at, stride); },
      [&](std::uint64_t at, std::uint64_t stride) {
        if constexpr (kBatch > 1) combine_vectors<Format, 1, Machine>(ends, op, at, stride);
      });
  combine_elements<Format>(machine, ends, op, end, ends.bytes);
}

/// One source: copies bytes of any type. In place there is nothing to do, and peers may be reading.
template <class Machine, class Ends>
SYNTONY_CALLED void copy(const Machine& machine, const Ends& ends) {
  if (ends.destinations == 1 && ends.source(0) == ends.destination(0)) return;
  constexpr std::uint32_t kBatch = 4;
  const std::uint64_t head = bytes_before_vectors<1>(ends);
  const std::uint64_t end = head + (ends.bytes - head) / sizeof(Vector) * sizeof(Vector);
  copy_bytes(machine, ends, 0, head);
  each_vector<kBatch>(
      machine, head, end,
      [&](std::uint64_t at, std::uint64_t stride) { copy_vectors<kBatch, Machine>(ends, at, stride); },
      [&](std::uint64_t at, std::uint64_t stride) { copy_vectors<1, Machine>(ends, at, stride); });
  copy_bytes(machine, ends, end, ends.bytes);
}

}  // namespace syntony::cuda
