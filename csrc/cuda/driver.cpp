#include "cuda/driver.hpp"

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

#include "cuda/cuda_objects.hpp"

namespace syntony::cuda {

void* find_driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  constexpr unsigned kVersion = 12010;  // the first with multicast objects
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
#else
  const cudaError_t status = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  check(status, std::string("finding ") + name);
  if (found == nullptr) throw std::runtime_error(std::string("the CUDA driver here has no ") + name);
  return found;
}

void check(CUresult status, std::string_view doing) {
  if (status == CUDA_SUCCESS) return;
  const auto describe = driver_function<CUresult (*)(CUresult, const char**)>("cuGetErrorString");
  const char* why = nullptr;
  if (describe(status, &why) != CUDA_SUCCESS || why == nullptr) why = "an error without a name";
  throw std::runtime_error(std::string(doing) + " failed: " + why + " (" + std::to_string(status) + ")");
}

bool supports_multicast(int device) {
  int value = 0;
  const auto ask = driver_function<CUresult (*)(int*, CUdevice_attribute, CUdevice)>("cuDeviceGetAttribute");
  const CUresult status = ask(&value, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device);
  return status == CUDA_SUCCESS && value != 0;
}

}  // namespace syntony::cuda
