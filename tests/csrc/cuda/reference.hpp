// The required result of a Program: a second, slow implementation, whole slots at a time, with the CPU's arithmetic.
#pragma once

#include <cstddef>
#include <vector>

#include "core/kernels/dtype.hpp"
#include "core/program/prepared_program.hpp"

namespace syntony::cuda {

using Bytes = std::vector<std::byte>;

/// A rank's buffers: the input and output of each block; empty if the collective gives it none. In place, the output of
/// a block that has both starts as its input.
struct Buffers {
  std::vector<Bytes> input, output;
};

/// Runs the Program on `ranks`, which sets their outputs. Throws std::logic_error if it gets stuck.
void run_reference(const PreparedProgram& program, DType dtype, ReduceOp op, std::vector<Buffers>& ranks,
                   bool in_place);

}  // namespace syntony::cuda
