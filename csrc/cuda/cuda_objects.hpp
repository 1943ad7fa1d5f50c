// RAII wrappers of CUDA objects, and CUDA errors as readable messages.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cuda/device/arena.hpp"

namespace syntony::cuda {

/// Throws std::runtime_error that says what failed, and why.
void check(cudaError_t status, std::string_view doing);

/// GPUs that this process can use; also 0 if there is no driver.
[[nodiscard]] int device_count();

/// The properties of a GPU that reports need.
struct DeviceFacts {
  std::string name;
  std::string pci;              // domain:bus:device
  int major = 0, minor = 0;     // of its architecture: 9.0 is Hopper
  int processors = 0;           // streaming multiprocessors
  std::size_t memory = 0;       // bytes
  bool multicast = false;       // it can join multicast objects: NVLink through switches
  int driver = 0, runtime = 0;  // CUDA versions: 13000 is 13.0
};
[[nodiscard]] DeviceFacts describe(int device);

/// Makes a device current for the calling thread, for libraries that use the current one.
void use(int device);

/// Makes a device current for its lifetime.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

/// Zeroed GPU memory from cudaMalloc, which other processes can open.
class DeviceMemory {
 public:
  DeviceMemory(int device, std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  /// Both wait until the copy is complete.
  void write(std::span<const std::byte> bytes, std::size_t offset = 0);
  void read(std::span<std::byte> bytes, std::size_t offset = 0) const;
  /// CUDA's own copy of all bytes of `other`, which has the same size, in the stream.
  void copy_from(const DeviceMemory& other, cudaStream_t stream);

 private:
  int device_;
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

/// Pinned host memory: kernels access it while they run, and copies from and to it are asynchronous.
class MappedMemory {
 public:
  explicit MappedMemory(std::size_t bytes);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  [[nodiscard]] void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// Words through which the host and the running kernels of a rank communicate: the request to stop, and why they
/// stopped. Usable from any thread.
class HostWords {
 public:
  HostWords();
  /// Makes lanes stop where they are.
  void abort();
  /// Empty if nothing is wrong.
  [[nodiscard]] std::optional<Trouble> trouble() const;
  /// For launches:
  [[nodiscard]] std::uint32_t* abort_word() const { return &words().abort; }
  [[nodiscard]] Trouble* trouble_words() const { return &words().trouble; }

 private:
  struct Words {
    std::uint32_t abort;
    Trouble trouble;
  };
  [[nodiscard]] Words& words() const { return *static_cast<Words*>(memory_.data()); }

  MappedMemory memory_;
};

/// What another process needs to access this device memory: an IPC handle of its allocation, and the offset in it.
[[nodiscard]] std::string export_memory(const std::byte* memory);

/// Another process's device memory. Keep it for as long as its address is in use.
class ImportedMemory {
 public:
  /// `exported` is another process's export_memory. Throws std::invalid_argument if it is invalid.
  ImportedMemory(int device, std::string_view exported);
  ~ImportedMemory();
  ImportedMemory(const ImportedMemory&) = delete;
  ImportedMemory& operator=(const ImportedMemory&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  int device_;
  void* base_ = nullptr;
  std::byte* data_ = nullptr;
};

/// Copies between GPU and host memory, in the stream.
void copy(int device, std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t stream);
/// True if the stream is being captured into a graph instead of run; `device` is the current one.
[[nodiscard]] bool is_capturing(cudaStream_t stream);

/// A captured stream, which can be launched repeatedly.
class Graph {
 public:
  explicit Graph(cudaGraph_t captured);  // takes ownership
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(cudaStream_t stream);

 private:
  cudaGraphExec_t executable_ = nullptr;
};

class Stream {
 public:
  explicit Stream(int device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] cudaStream_t handle() const { return stream_; }
  void synchronize() const;
  /// Work in this stream from here on waits for what `other` holds now; a capture spreads to this stream.
  void wait_for(const Stream& other);
  void begin_capture();
  [[nodiscard]] std::unique_ptr<Graph> end_capture();

 private:
  int device_;
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(int device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  [[nodiscard]] cudaEvent_t handle() const { return event_; }
  void record(cudaStream_t stream);
  /// What is put into the stream from here on runs after what was recorded last, if anything was.
  void precede(cudaStream_t stream) const;
  /// True if everything recorded has completed or failed; waiting for it reports a failure.
  [[nodiscard]] bool done() const;
  void synchronize() const;
  /// Seconds from `earlier` to this event, both of which have occurred.
  [[nodiscard]] double seconds_since(const Event& earlier) const;

 private:
  int device_;
  cudaEvent_t event_ = nullptr;
};

}  // namespace syntony::cuda
