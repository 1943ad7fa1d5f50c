// Where an operation's tensors lie in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

#include "core/kernels/dtype.hpp"
#include "core/runtime/communicator.hpp"

namespace syntony::glue {

/// The runtime's name for a torch dtype, or nothing for those it cannot reduce (quantized, sub-byte): they move as
/// bytes.
[[nodiscard]] std::optional<DType> dtype_of(at::ScalarType type);

/// Holds an operation's tensors while it is in flight and hands out their memory. A contiguous tensor is used where it
/// lies; any other (strided, conjugated) is staged: copied before, and copied back after if it is an output.
class Buffers {
 public:
  /// Memory with the tensor's content. Never null, not even for an empty tensor: null means "no buffer" in a Block.
  const std::byte* input(const at::Tensor& tensor);
  /// Memory that `copy_back()` makes the tensor's content.
  std::byte* output(const at::Tensor& tensor);
  /// The same memory as input and output.
  Block in_place(const at::Tensor& tensor);

  /// After success: fills the outputs that were staged.
  void copy_back();

 private:
  std::vector<at::Tensor> held_;
  std::vector<std::pair<at::Tensor, at::Tensor>> staged_;  // output tensor, where its content is
};

}  // namespace syntony::glue
