// What a Program must give: a second, slow reading of it, whole slots at a time, with the CPU's own arithmetic.
#pragma once

#include <cstddef>
#include <vector>

#include "core/kernels/dtype.hpp"
#include "core/program/prepared_program.hpp"

namespace syntony::cuda {

using Bytes = std::vector<std::byte>;

/// A rank's buffers: of each block its input and its output; empty where the collective gives it none. In place, the
/// output of a block that has both begins as its input.
struct Buffers {
  std::vector<Bytes> input, output;
};

/// Runs the Program on `ranks`, whose outputs are then what they must be. Throws std::logic_error when it gets stuck.
void run_reference(const PreparedProgram& program, DType dtype, ReduceOp op, std::vector<Buffers>& ranks,
                   bool in_place);

}  // namespace syntony::cuda
