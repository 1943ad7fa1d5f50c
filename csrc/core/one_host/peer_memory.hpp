// How a rank accesses the buffers of another process on its host without an extra copy.
//
//     registered   syntony.collectives.empty() and torch's allocator hook allocate memfds: each is mapped once
//
//     any other    process_vm_readv, if the system permits it (same user; not in every sandbox)
//
// SYNTONY_PEER_READS=0 forbids the latter, on all ranks if set on one. If the system cannot read a buffer (device
// memory, secret memory), its owner knows before anything has moved, and all ranks use copies.
//
// Only outputs in registered memory are written by peers, of an all_reduce that goes past the caches. A rank that gives
// it up (a timeout, an abort) is free to reuse its buffers nevertheless: see ShareableMemory::withdraw().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "core/one_host/read_permission.hpp"
#include "core/shm/shareable_memory.hpp"

namespace syntony {

/// Where a buffer is, as told by its owner to its peers. Plain data.
struct BufferAddress {
  std::uint64_t address = 0;  // in the owner's process
  std::uint64_t offset = 0;   // within the registered piece,
  std::uint64_t bytes = 0;    // length: no peer may read more
  std::uint32_t piece = 0;    // its number in the owner's process; 0: not registered
  std::int32_t descriptor = -1;
};

class PeerMemory {
 public:
  /// `processes`: by rank.
  explicit PeerMemory(std::vector<pid_t> processes);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  [[nodiscard]] static BufferAddress address_of(const std::byte* data, std::size_t bytes);
  /// True if the system lets others read these buffers of this process, judged by their first and last bytes.
  [[nodiscard]] static bool readable(std::span<const BufferAddress> buffers);

  /// A number at an address: a process that can read it there can read all ordinary memory of this process.
  struct Proof {
    std::uint64_t address = 0;
    std::uint64_t number = 0;
  };
  [[nodiscard]] Proof proof() const { return {reinterpret_cast<std::uint64_t>(&number_), number_}; }
  [[nodiscard]] bool convinced(std::uint32_t rank, const Proof& proof) const;

  /// Copies `bytes` from `address` in the process of `rank`; false if they cannot be read. Throws Error(dead) naming it
  /// if the process no longer exists.
  [[nodiscard]] bool read(std::uint32_t rank, std::byte* to, std::uint64_t address, std::size_t bytes) const;

  /// The registered buffer as mapped here, or null if not registered or not mappable. Valid until trim().
  [[nodiscard]] std::byte* map(std::uint32_t rank, const BufferAddress& buffer);
  /// Between operations: unmaps if there are many mappings, because they keep memory that its owner may have freed.
  void trim();

  /// Whether all ranks can read each other's memory; set once they have told each other.
  std::optional<bool> open_to_all;
  /// Memory to read into, aligned to a cache line; kept for the next operation.
  [[nodiscard]] std::span<std::byte> room(std::size_t bytes);

 private:
  void unmap_all();

  struct Mapping {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  std::vector<pid_t> processes_;
  bool allowed_;  // to read and to be read
  ReadPermission permission_;
  std::uint64_t number_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Mapping> mapped_;  // by rank and piece
  std::vector<std::byte> room_;
};

}  // namespace syntony
