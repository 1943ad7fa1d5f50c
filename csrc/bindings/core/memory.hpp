// Where an array of Python's lies, for calls that cannot wait for Python to find out.
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

/// Of what has the buffer protocol; nothing unless it is contiguous and its elements are ours.
[[nodiscard]] std::optional<Memory> memory_of(nanobind::handle array);

}  // namespace syntony
