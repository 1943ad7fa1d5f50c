// A call's memory, as Programs and their like see it.
#pragma once

#include <cstddef>

namespace syntony {

/// One block of a collective's buffers (program.hpp, `Collective`): where it lies on this rank and how large it is.
/// `input` or `output` is null where the collective gives this rank none. The same memory in both means in place.
struct Block {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t elements = 0;
};

}  // namespace syntony
