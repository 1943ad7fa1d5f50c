// How ranks that know nothing of each other meet: a single all_gather. torch's Store, a TCP rendezvous, MPI and threads
// of one process all implement it (csrc/torch/store_bootstrap.hpp, collectives/bootstrap/bootstraps.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace syntony {

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  [[nodiscard]] virtual std::uint32_t rank() const = 0;
  [[nodiscard]] virtual std::uint32_t size() const = 0;

  /// Every rank contributes `blob` under the same `name` (used once) and receives all blobs in rank order. Throws
  /// Error(timeout) naming the missing ranks.
  virtual std::vector<std::string> all_gather(const std::string& name, const std::string& blob) = 0;

  /// A secret that all ranks know and an eavesdropper on their messages does not; empty if there is none.
  [[nodiscard]] virtual std::string secret() const { return {}; }
};

}  // namespace syntony
