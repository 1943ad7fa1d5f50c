// A collective that a call asks for, wherever its memory lies.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/group/communicator.hpp"
#include "core/kernels/dtype.hpp"

namespace syntony::glue {

struct Request {
  Collective collective = Collective::all_reduce;
  at::ScalarType type = at::kByte;  // torch's name for the elements
  DType dtype = DType::uint8;       // ours, or bytes where there is none: then blocks count bytes
  ReduceOp op = ReduceOp::sum;
  std::uint32_t root = 0;
  std::vector<Block> blocks{};  // NOLINT(readability-redundant-member-init)
  Scaling scaling{};            // NOLINT(readability-redundant-member-init)
  bool weighted = false;        // ranks have factors; this one's may be 1
  bool even = true;

  [[nodiscard]] std::size_t element_bytes() const { return size_of(dtype); }
  /// Sizes that each rank knows of itself only.
  [[nodiscard]] bool own_sizes_only() const { return collective == Collective::all_to_all && !even; }
};

}  // namespace syntony::glue
