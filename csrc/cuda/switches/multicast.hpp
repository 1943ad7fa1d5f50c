// Memory of several GPUs behind one address, served by NVLink switches (CUDA's multicast objects).
//
//     rank 0                       everybody else
//     Multicast(device, ranks, bytes)
//     exported()  ──────────────►  Multicast(device, ranks, bytes, exported)
//     join()                       join()               its GPU is one of them
//                  -- all have joined --
//     bind()                       bind()               its memory stands behind the address
//                  -- all have bound --
//     own(): this rank's memory as it is; all(): the address in front of everybody's
//
// The handle is a file descriptor, which a process fetches from another one on its host with the same user. GPUs of
// several hosts (fabric handles) are not supported. Needs CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: NVSwitch and Hopper
// or later.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace syntony::cuda {

/// Not thread-safe.
class Multicast {
 public:
  /// For rank 0. Throws std::invalid_argument if the GPU cannot join such an object.
  Multicast(int device, std::uint32_t ranks, std::size_t bytes);
  /// For the others; `exported` is rank 0's.
  Multicast(int device, std::uint32_t ranks, std::size_t bytes, std::string_view exported);
  ~Multicast();
  Multicast(const Multicast&) = delete;
  Multicast& operator=(const Multicast&) = delete;

  [[nodiscard]] std::string exported() const;
  void join();
  void bind();

  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] std::uint32_t ranks() const { return ranks_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  [[nodiscard]] std::byte* own() const { return reinterpret_cast<std::byte*>(own_); }
  [[nodiscard]] std::byte* all() const { return reinterpret_cast<std::byte*>(all_); }

 private:
  struct Driver;

  [[nodiscard]] CUdeviceptr map(CUmemGenericAllocationHandle handle);
  void unmap(CUdeviceptr address) noexcept;
  void release() noexcept;

  int device_;
  std::uint32_t ranks_;
  std::size_t bytes_;  // as requested, rounded up to the granularity of such objects
  CUmemGenericAllocationHandle object_ = 0, memory_ = 0;
  CUdeviceptr own_ = 0, all_ = 0;
  int shared_ = -1;  // the descriptor that others fetch
  bool joined_ = false, bound_ = false;
};

}  // namespace syntony::cuda
