// A collective as its caller asks for it: the one value that travels from a front door (Python, torch) into the
// operation that runs it (core/group/group.hpp).
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
  std::string algorithm = "auto";          // a builder's name, or the name of a loaded Program
  std::chrono::milliseconds timeout{0};    // 0: the group's default
  bool async = false;                      // false: completed (or failed) when the call returns
  std::optional<Priority> priority;        // none: the group's, or else usual_priority(collective)
  std::size_t partition = 0;               // bytes of a part (Communicator::run); 0: as a whole
  std::shared_ptr<const void> keep_alive;  // held until the operation is done: the buffers' owner
};

/// Infinity, as timeouts are added to moments that are counted in nanoseconds: thirty years.
inline constexpr std::chrono::milliseconds kLongestTimeout{1'000'000'000'000};
[[nodiscard]] inline std::chrono::steady_clock::time_point after(std::chrono::milliseconds timeout) {
  return std::chrono::steady_clock::now() + std::min(timeout, kLongestTimeout);
}

/// From when to when an operation may last.
struct Lifetime {
  std::chrono::steady_clock::time_point created;
  std::chrono::steady_clock::time_point deadline;
};

struct Call {
  Collective collective = Collective::all_reduce;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  std::uint32_t root = 0;
  /// Indexed as collective.hpp says (all_to_all: only those with this rank as source or destination need memory).
  std::vector<Block> blocks{};
  bool even = true;  // all blocks are equally large on all ranks
  Scaling scaling{};
  CallOptions options{};

  [[nodiscard]] std::size_t element_bytes() const { return size_of(dtype); }
  /// Each pair of ranks knows its sizes, and nobody all of them.
  [[nodiscard]] bool own_sizes_only() const { return collective == Collective::all_to_all && !even; }
  /// Elements of the largest block.
  [[nodiscard]] std::size_t longest() const;
  /// Elements of the whole operation, on which ranks agree; 0 where they know only their own.
  [[nodiscard]] std::size_t elements(std::uint32_t ranks) const;
  /// By which algorithms are chosen: bytes of the whole operation, 0 where ranks do not know them alike.
  [[nodiscard]] std::size_t known_bytes(std::uint32_t ranks) const {
    return even ? elements(ranks) * element_bytes() : 0;
  }
  /// Throws Error(invalid) for what a group of so many ranks cannot do, whatever runs it.
  void validate(std::uint32_t ranks) const;
};

}  // namespace syntony
