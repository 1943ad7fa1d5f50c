// One-sided access between the ranks of a host: memory that all of them map, and signals that announce its contents.
//
//     rank 0                                      rank 1
//     put(1, offset, bytes)   ── copies ──►       memory
//     signal(1)               ── adds 1 ──►       count of rank 0's signals  ◄──  await(0, ..) sleeps until it arrives
//
// A rank that has awaited a signal sees everything that the signalling rank put before it. Nothing else is ordered or
// protected: concurrent writes of the same bytes, or reads of what is being written, are data races.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/atomic.hpp"
#include "core/group/communicator.hpp"
#include "core/shm/process_watch.hpp"
#include "core/shm/shareable_memory.hpp"

namespace syntony {

/// Thread-safe. Destroyed independently of the others: ranks that still map this rank's memory keep it.
class Window {
 public:
  /// Collective over `group`, which must outlive it. `memory` may be empty and may differ in size between ranks; it
  /// must be in ShareableMemory, which its owner keeps. Throws on all ranks: Error(invalid) if a rank's memory is not,
  /// or if the ranks are on several hosts; Error(system) if a rank cannot map the others' memory.
  Window(std::shared_ptr<Communicator> group, std::span<std::byte> memory);

  /// The memory of a rank as mapped here.
  [[nodiscard]] std::span<std::byte> of(std::uint32_t rank) const { return peers_[rank].memory; }
  /// Keeps that mapping alive beyond the Window.
  [[nodiscard]] std::shared_ptr<const void> hold(std::uint32_t rank) const { return peers_[rank].mapped; }

  /// Throws Error(invalid) beyond the end of that rank's memory.
  void put(std::uint32_t rank, std::size_t offset, std::span<const std::byte> bytes) const;
  void signal(std::uint32_t rank) const;

  /// The number of the next signal from `rank` that nobody here has asked for yet.
  [[nodiscard]] std::uint32_t next(std::uint32_t rank);
  [[nodiscard]] bool arrived(std::uint32_t rank, std::uint32_t number) const;
  /// Waits for that signal. Timeout 0: the group's. Throws Error: timeout or dead naming `rank`, or the group's own
  /// error.
  void await(std::uint32_t rank, std::uint32_t number, std::chrono::milliseconds timeout) const;

 private:
  /// How often one rank has signalled another, in the memory of the latter. Initially zero.
  struct alignas(64) Count {
    Atomic<std::uint32_t> signals;
    Atomic<std::uint32_t> sleepers;
  };
  struct Peer {
    std::span<std::byte> memory;
    std::span<Count> counts;  // by signalling rank
    std::shared_ptr<const void> mapped, mapped_counts;
    pid_t process = 0;
  };
  /// Where a rank's memory is, as told to the others.
  struct Place;

  std::vector<Place> exchange(const Place& mine) const;
  [[nodiscard]] std::string sentence(std::uint32_t rank, const std::string& what) const;

  std::shared_ptr<Communicator> group_;
  std::shared_ptr<ShareableMemory> counts_;
  std::vector<Peer> peers_;
  std::vector<Atomic<std::uint32_t>> asked_;  // signals, by rank
};

}  // namespace syntony
