// A collective as its caller requests it: the one value passed from a front end (Python, torch) to the operation that
// runs it (core/group/group.hpp).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/kernels/dtype.hpp"
#include "core/priority.hpp"
#include "core/program/block.hpp"
#include "core/program/collective.hpp"

namespace syntony {

/// How a `sum` is averaged or weighted; ranks must agree on `average` and on whether there are factors.
struct Scaling {
  bool average = false;            // divide the sum by the number of ranks (integers truncate)
  std::optional<double> factor{};  // multiply this rank's input first (floating dtypes)

  [[nodiscard]] bool weighs() const { return factor.value_or(1.0) != 1.0; }
};

struct CallOptions {
  std::string algorithm = "auto";          // a builder's name or the name of a loaded Program
  std::chrono::milliseconds timeout{0};    // 0: the group's default
  bool async = false;                      // false: the call returns when the operation has completed or failed
  std::optional<Priority> priority;        // none: the group's, else usual_priority(collective)
  std::size_t partition = 0;               // bytes per part (Communicator::run); 0: not partitioned
  std::shared_ptr<const void> keep_alive;  // the buffers' owner, held until the operation is done
};

/// Caps timeouts (at about thirty years) so that adding one to a time in nanoseconds cannot overflow.
inline constexpr std::chrono::milliseconds kLongestTimeout{1'000'000'000'000};
[[nodiscard]] inline std::chrono::steady_clock::time_point after(std::chrono::milliseconds timeout) {
  return std::chrono::steady_clock::now() + std::min(timeout, kLongestTimeout);
}

/// When an operation was created and when it must be done.
struct Lifetime {
  std::chrono::steady_clock::time_point created;
  std::chrono::steady_clock::time_point deadline;
};

struct Call {
  Collective collective = Collective::all_reduce;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  std::uint32_t root = 0;
  /// Indexed as described in collective.hpp. For all_to_all, only blocks with this rank as source or destination need
  /// memory.
  std::vector<Block> blocks{};
  bool even = true;  // all blocks have the same size on all ranks
  Scaling scaling{};
  CallOptions options{};

  [[nodiscard]] std::size_t element_bytes() const { return size_of(dtype); }
  /// Each pair of ranks knows the sizes it exchanges, but no rank knows all sizes.
  [[nodiscard]] bool own_sizes_only() const { return collective == Collective::all_to_all && !even; }
  /// Elements of the largest block.
  [[nodiscard]] std::size_t longest() const;
  /// Elements of the whole operation, equal on all ranks; 0 if each rank knows only its own sizes.
  [[nodiscard]] std::size_t elements(std::uint32_t ranks) const;
  /// Bytes of the whole operation, by which the algorithm is chosen; 0 if the ranks may not know the same number.
  [[nodiscard]] std::size_t known_bytes(std::uint32_t ranks) const {
    return even ? elements(ranks) * element_bytes() : 0;
  }
  /// Throws Error(invalid) if a group of `ranks` ranks cannot run this call with any algorithm.
  void validate(std::uint32_t ranks) const;
};

}  // namespace syntony
