// Copies by the processor's copy engine (Hopper's cp.async.bulk): the leader says which tile goes where, and no other
// thread is involved. A tile goes memory -> shared memory -> every destination.
//
//     tile       0        1        2        3        4                       kStages tiles are in flight at once:
//     stage 0  ▏load    ▏store ..        ▏load    ▏store                    a stage is reloaded once its stores have
//     stage 1           ▏load    ▏store ..        ▏load                     read it
//
// A Machine provides, in addition to what interpreter.hpp needs, for its leader:
//   bulk()                       whether this launch copies this way; constant
//   bulk_begin()                 makes what this thread has seen visible to the engine
//   bulk_load(stage, from, n)    begins; n and addresses are multiples of 16
//   bulk_loaded(stage)           waits until it is there
//   bulk_store(to, stage, n)     begins; all since the last bulk_commit are a group
//   bulk_commit()
//   bulk_read_but_one()          waits until all groups but the last have read their stage
//   bulk_end()                   waits until all stores are in memory, for everybody who acquires from this thread
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/combine.hpp"
#include "cuda/device/qualifiers.hpp"

namespace syntony::cuda {

/// Stages per block, and bytes per stage.
struct BulkStages {
  static constexpr std::uint32_t kStages = 4;
  static constexpr std::uint32_t kBytes = 16 << 10;
};

/// Copies bytes [from, to) of the first source to every destination; both and all addresses must be multiples of 16.
/// Called by the leader.
template <class Machine, class Ends>
SYNTONY_DEVICE void bulk_tiles(const Machine& machine, const Ends& ends, std::uint64_t from, std::uint64_t to) {
  const std::uint64_t tiles = (to - from + BulkStages::kBytes - 1) / BulkStages::kBytes;
  const auto at = [&](std::uint64_t tile) { return from + tile * BulkStages::kBytes; };
  const auto bytes = [&](std::uint64_t tile) {
    const std::uint64_t left = to - at(tile);
    return static_cast<std::uint32_t>(left < BulkStages::kBytes ? left : BulkStages::kBytes);
  };
  const auto stage = [](std::uint64_t tile) { return static_cast<std::uint32_t>(tile % BulkStages::kStages); };
  const auto load = [&](std::uint64_t tile) { machine.bulk_load(stage(tile), ends.source(0) + at(tile), bytes(tile)); };

  machine.bulk_begin();
  for (std::uint64_t tile = 0; tile + 1 < BulkStages::kStages && tile < tiles; ++tile) load(tile);
  for (std::uint64_t tile = 0; tile < tiles; ++tile) {
    machine.bulk_loaded(stage(tile));
    for (std::uint32_t d = 0; d < ends.destinations; ++d) {
      machine.bulk_store(ends.destination(d) + at(tile), stage(tile), bytes(tile));
    }
    machine.bulk_commit();
    const std::uint64_t next = tile + BulkStages::kStages - 1;  // into the previous tile's stage
    if (next >= tiles) continue;
    machine.bulk_read_but_one();
    load(next);
  }
  machine.bulk_end();
}

/// Does what `copy` does (combine.hpp), called by all threads of a block; they continue before the copy engine is done,
/// the leader when it is.
template <class Machine, class Ends>
SYNTONY_CALLED void bulk_copy(const Machine& machine, const Ends& ends) {
  constexpr std::uintptr_t kMask = sizeof(Vector) - 1;
  if (ends.destinations == 1 && ends.source(0) == ends.destination(0)) return;
  const auto first = reinterpret_cast<std::uintptr_t>(ends.source(0)) & kMask;
  bool alike = true;
  for (std::uint32_t d = 0; d < ends.destinations; ++d) {
    alike = alike && (reinterpret_cast<std::uintptr_t>(ends.destination(d)) & kMask) == first;
  }
  const std::uint64_t head = (sizeof(Vector) - first) & kMask;
  if (!alike || ends.bytes < head + BulkStages::kBytes) return copy(machine, ends);  // too little, or unaligned
  const std::uint64_t end = head + (ends.bytes - head) / sizeof(Vector) * sizeof(Vector);
  if (machine.thread() == 0) bulk_tiles(machine, ends, head, end);
  copy_bytes(machine, ends, 0, head);
  copy_bytes(machine, ends, end, ends.bytes);
}

}  // namespace syntony::cuda
