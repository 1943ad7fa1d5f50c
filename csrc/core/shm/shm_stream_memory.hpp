// The memory of one stream, shared by both ends (shm_segment.hpp shows where it lies):
//
//      | released | (stamp, header) payload | (stamp, header) payload | .. depth slots
//
// The source writes a frame and then its stamp; the destination reads it and then counts it as released.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/shm/shm_segment.hpp"

namespace syntony {

struct ShmStreamMemory {
  std::byte* base;
  std::uint32_t depth;
  std::uint32_t slot_bytes;

  [[nodiscard]] static constexpr std::size_t bytes(const StreamShape& shape) {
    return kCacheLine + shape.depth * (sizeof(SlotLine) + shape.slot_bytes);
  }
  /// Frames the destination has released so far: they give the source its credit.
  [[nodiscard]] Atomic<std::uint64_t>& released() const { return *reinterpret_cast<Atomic<std::uint64_t>*>(base); }
  [[nodiscard]] SlotLine& slot(std::uint64_t frame) const {
    return *reinterpret_cast<SlotLine*>(base + kCacheLine + (frame % depth) * (sizeof(SlotLine) + slot_bytes));
  }
  [[nodiscard]] std::byte* payload(std::uint64_t frame) const {
    return reinterpret_cast<std::byte*>(&slot(frame)) + sizeof(SlotLine);
  }
};

}  // namespace syntony
