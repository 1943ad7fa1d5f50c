// libfabric, loaded on first use: nothing is linked against it at build time. These functions open a fabric; all others
// are reached through the objects they return.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <string>

namespace syntony {

struct LibfabricLibrary {
  decltype(&fi_version) version = nullptr;
  decltype(&fi_getinfo) getinfo = nullptr;
  decltype(&fi_freeinfo) freeinfo = nullptr;
  decltype(&fi_dupinfo) dupinfo = nullptr;
  decltype(&fi_fabric) fabric = nullptr;
  decltype(&fi_strerror) strerror = nullptr;

  /// Loaded once. Throws Error(system) if it is missing, or older than the headers that this was built with.
  [[nodiscard]] static const LibfabricLibrary& get();
  /// libfabric's message for a return value or a completion's error.
  [[nodiscard]] std::string sentence(long error) const {
    return strerror(static_cast<int>(error < 0 ? -error : error));
  }
  /// "libfabric 1.17"
  [[nodiscard]] std::string name() const;
};

}  // namespace syntony
