// The communication queues of a step and the pairwise sum for Python: part of the module syntony._torch, as both take
// tensors.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace syntony::overlap {

void bind(pybind11::module_& module);

}  // namespace syntony::overlap
