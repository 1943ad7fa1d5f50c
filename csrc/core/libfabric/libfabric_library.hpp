// libfabric, found when the process first asks for it: nothing of ours is linked with it. These functions open a
// fabric; all others are reached through what they return.
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

  /// Loaded once. Throws Error(system) where there is none, or one older than the headers that this was built with.
  [[nodiscard]] static const LibfabricLibrary& get();
  /// libfabric's sentence for what its functions return, or its completions hold.
  [[nodiscard]] std::string sentence(long error) const {
    return strerror(static_cast<int>(error < 0 ? -error : error));
  }
  /// "libfabric 1.17"
  [[nodiscard]] std::string name() const;
};

}  // namespace syntony
