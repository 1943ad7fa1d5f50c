// Memory for buffers that all ranks of a host could map: each piece is a memfd, page-aligned, in huge pages where the
// kernel grants them for shared memory, untouched when handed out (so its pages lie near whoever writes them first).
//
// The process keeps a table of its pieces: find() tells a transport under which descriptor a buffer could be mapped by
// its peers (one_host/peer_memory.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/process/unique_fd.hpp"

namespace syntony {

class ShareableMemory {
 public:
  /// Zeros; at least one page. A child made by fork() shares it, and does not get a copy. Throws Error(system).
  static std::shared_ptr<ShareableMemory> allocate(std::size_t bytes);
  ~ShareableMemory();
  ShareableMemory(const ShareableMemory&) = delete;
  ShareableMemory& operator=(const ShareableMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }

  struct Place {
    int descriptor = -1;  // of the memfd
    std::size_t offset = 0;
    std::uint32_t piece = 0;  // counted in this process from 1: descriptors are used again, these are not
  };
  /// Where `bytes` at `address` lie; nothing unless they are all in one living piece.
  [[nodiscard]] static std::optional<Place> find(const std::byte* address, std::size_t bytes);

 private:
  explicit ShareableMemory(std::size_t bytes);

  std::uint32_t number_;
  UniqueFd memory_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;        // of the piece
  std::byte* mapped_ = nullptr;  // with room before it for alignment
  std::size_t mapped_bytes_ = 0;
};

}  // namespace syntony
