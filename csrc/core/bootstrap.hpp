// How ranks that know nothing of each other meet: one function. torch's Store, a TCP rendezvous, MPI and threads of one
// process all implement it (csrc/torch/store_bootstrap.hpp, collectives/bootstrap/bootstraps.py).
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

  /// Every rank brings `blob` under the same `name` (used once) and gets everybody's, in rank order.
  /// Throws Error(timeout) naming the ranks that did not come.
  virtual std::vector<std::string> all_gather(const std::string& name, const std::string& blob) = 0;

  /// What all ranks know and nobody who has only read what they say to each other; empty where there is no such thing.
  [[nodiscard]] virtual std::string secret() const { return {}; }
};

}  // namespace syntony
