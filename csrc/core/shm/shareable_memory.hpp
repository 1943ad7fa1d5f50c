// Memory for buffers that all ranks of a host can map: each piece is a memfd, page-aligned, in huge pages if the kernel
// grants them for shared memory. They are provided at once, near the caller's CPU; small pages near their first writer.
//
// The process keeps a table of its pieces: find() tells a transport under which descriptor peers could map a buffer
// (one_host/peer_memory.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/process/unique_fd.hpp"

namespace syntony {

class ShareableMemory {
 public:
  /// Zeroed; at least one page. A child made by fork() shares it instead of getting a copy. Throws Error(system).
  static std::shared_ptr<ShareableMemory> allocate(std::size_t bytes);
  ~ShareableMemory();
  ShareableMemory(const ShareableMemory&) = delete;
  ShareableMemory& operator=(const ShareableMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }

  struct Place {
    int descriptor = -1;  // of the memfd
    std::size_t offset = 0;
    std::uint32_t piece = 0;  // counted from 1 in this process and never reused, unlike descriptors
  };
  /// Where `bytes` at `address` lie; empty unless they are all in one live piece.
  [[nodiscard]] static std::optional<Place> find(const std::byte* address, std::size_t bytes);

  /// What peers write here from now on is lost: the pages that hold `bytes` at `address` are exchanged for others with
  /// the same contents, and their piece is not found any more. Others must not write into them meanwhile. False if the
  /// system refuses the memory.
  [[nodiscard]] static bool withdraw(std::byte* address, std::size_t bytes);

 private:
  explicit ShareableMemory(std::size_t bytes);
  void provide_huge_pages();

  std::uint32_t number_;
  UniqueFd memory_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;        // of the piece
  std::byte* mapped_ = nullptr;  // includes room before it for alignment
  std::size_t mapped_bytes_ = 0;
};

}  // namespace syntony
