// Functions of the CUDA driver, loaded at run time: nothing links to the driver, which most machines lack.
#pragma once

#include <cuda.h>

#include <string_view>

namespace syntony::cuda {

/// Throws std::runtime_error, naming the function, if the driver does not have it.
[[nodiscard]] void* find_driver_function(const char* name);

template <class Function>
[[nodiscard]] Function driver_function(const char* name) {
  return reinterpret_cast<Function>(find_driver_function(name));
}

/// Throws std::runtime_error that says what failed, and why.
void check(CUresult status, std::string_view doing);

/// True if the GPU can join multicast objects (multicast.hpp).
[[nodiscard]] bool supports_multicast(int device);

}  // namespace syntony::cuda
