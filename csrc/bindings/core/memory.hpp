// Where a Python array is in memory, for calls too fast for Python to find out.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <optional>

#include "core/kernels/dtype.hpp"

namespace syntony {

struct Memory {
  std::byte* data;
  std::size_t elements;
  DType dtype;
  bool writable;
};

/// For torch tensors and objects with the buffer protocol; nothing unless contiguous and with elements of our types.
[[nodiscard]] std::optional<Memory> memory_of(nanobind::handle array);

}  // namespace syntony
