// Python bindings of a step's communication queues and of the pairwise sum: part of the module syntony._torch, because
// both take tensors.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace syntony::overlap {

void bind(pybind11::module_& module);

}  // namespace syntony::overlap
