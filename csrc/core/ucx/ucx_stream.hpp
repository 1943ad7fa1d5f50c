// A stream between two ranks of one machine, in memory of its sender that UCX has mapped at its receiver. Frames and
// credits are where ranks of one host have theirs (shm_stream_memory.hpp), behind what either rank says of itself: who
// has news for one that sleeps wakes it by a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/shm/shm_stream_memory.hpp"

namespace syntony {

struct alignas(kCacheLine) UcxSide {
  Atomic<std::uint32_t> sleeping;
  Atomic<std::uint32_t> cpu;  // on which it waited last, + 1; 0: not known
};

struct UcxStream {
  std::byte* base = nullptr;  // aligned to a cache line; null: there is no such memory
  std::uint32_t depth = 0;
  std::uint32_t slot_bytes = 0;

  [[nodiscard]] static constexpr std::size_t bytes(const StreamShape& shape) {
    return 2 * sizeof(UcxSide) + ShmStreamMemory::bytes(shape);
  }
  [[nodiscard]] static bool fits(const std::byte* base) {
    return base != nullptr && reinterpret_cast<std::uintptr_t>(base) % kCacheLine == 0;
  }
  /// Before anybody reads it: what UCX allocates may contain anything.
  void begin() const {
    std::construct_at(&sender());
    std::construct_at(&receiver());
    std::construct_at(&memory().released(), 0U);
    for (std::uint32_t slot = 0; slot < depth; ++slot) std::construct_at(&memory().slot(slot).stamp, 0U);
  }
  [[nodiscard]] UcxSide& sender() const { return reinterpret_cast<UcxSide*>(base)[0]; }
  [[nodiscard]] UcxSide& receiver() const { return reinterpret_cast<UcxSide*>(base)[1]; }
  [[nodiscard]] ShmStreamMemory memory() const { return {base + 2 * sizeof(UcxSide), depth, slot_bytes}; }
};

}  // namespace syntony
