// Where a torch tensor is in memory, without torch's headers and without Python code.
#pragma once

#include <Python.h>

#include <optional>

#include "bindings/core/memory.hpp"

namespace syntony {

/// Nothing for other objects, including subclasses, and for tensors that are not plain: on other devices, not
/// contiguous, without elements, not of our types, or conjugates and negatives that memory does not hold yet.
[[nodiscard]] std::optional<Memory> memory_of_tensor(PyObject* object);

}  // namespace syntony
