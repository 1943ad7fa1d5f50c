// Memory that ranks of one machine read where it is: UCX allocates it from what its shared memory transports offer, and
// another process maps it, if it can (ucp_rkey_ptr). Calls come from the thread that drives the worker.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/ucx/ucx_library.hpp"

namespace syntony {

class UcxMemory {
 public:
  UcxMemory(const UcxLibrary& ucx, ucp_context_h context) : ucx_(ucx), context_(context) {}
  ~UcxMemory();
  UcxMemory(const UcxMemory&) = delete;
  UcxMemory& operator=(const UcxMemory&) = delete;

  struct Shared {
    std::byte* begin = nullptr;  // null: there is none
    std::string where;           // from which another process finds it
  };
  /// Lives as long as this object.
  [[nodiscard]] Shared share(std::size_t bytes);
  /// Another process's memory, found by its `where`; nullptr if it cannot be mapped here. Mapped until forget_mapped().
  [[nodiscard]] std::byte* map(ucp_ep_h to, std::string_view where);
  /// While the worker exists.
  void forget_mapped();

 private:
  const UcxLibrary& ucx_;
  ucp_context_h context_;
  std::vector<ucp_mem_h> shared_;
  std::vector<ucp_rkey_h> mapped_;
};

}  // namespace syntony
