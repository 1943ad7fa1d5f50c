#include "cuda/cuda_objects.hpp"

#include <cuda.h>

#include <atomic>
#include <cstring>
#include <stdexcept>

#include "cuda/driver.hpp"

namespace syntony::cuda {
namespace {

struct Exported {
  cudaIpcMemHandle_t handle;
  std::uint64_t offset;
};

std::size_t offset_in_allocation(const std::byte* memory) {
  const auto ask = driver_function<CUresult (*)(CUdeviceptr*, std::size_t*, CUdeviceptr)>("cuMemGetAddressRange");
  CUdeviceptr base = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  if (ask(&base, nullptr, address) != CUDA_SUCCESS) {
    throw std::invalid_argument("address " + std::to_string(address) + " is not memory of a GPU of this process");
  }
  return address - base;
}

}  // namespace

void check(cudaError_t status, std::string_view doing) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(doing) + " failed: " + cudaGetErrorString(status) + " (" +
                           cudaGetErrorName(status) + ")");
}

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

DeviceFacts describe(int device) {
  const auto ask = [device](cudaDeviceAttr attribute) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, attribute, device), "asking about GPU " + std::to_string(device));
    return value;
  };
  DeviceFacts facts;
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "asking about GPU " + std::to_string(device));
  facts.name = properties.name;
  facts.memory = properties.totalGlobalMem;
  char pci[32] = {};
  check(cudaDeviceGetPCIBusId(pci, sizeof pci, device), "asking where GPU " + std::to_string(device) + " is");
  facts.pci = pci;
  facts.major = ask(cudaDevAttrComputeCapabilityMajor);
  facts.minor = ask(cudaDevAttrComputeCapabilityMinor);
  facts.processors = ask(cudaDevAttrMultiProcessorCount);
  facts.multicast = supports_multicast(device);
  check(cudaDriverGetVersion(&facts.driver), "asking for the driver's version");
  check(cudaRuntimeGetVersion(&facts.runtime), "asking for CUDA's version");
  return facts;
}

void use(int device) { check(cudaSetDevice(device), "choosing GPU " + std::to_string(device)); }

OnDevice::OnDevice(int device) {
  check(cudaGetDevice(&before_), "asking for the current GPU");
  check(cudaSetDevice(device), "choosing GPU " + std::to_string(device));
}
OnDevice::~OnDevice() { static_cast<void>(cudaSetDevice(before_)); }

DeviceMemory::DeviceMemory(int device, std::size_t bytes) : device_(device), bytes_(bytes) {
  if (bytes == 0) return;
  const OnDevice here(device);
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "allocating " + std::to_string(bytes) + " bytes on GPU " + std::to_string(device));
  data_ = static_cast<std::byte*>(memory);
  check(cudaMemset(data_, 0, bytes), "clearing memory of a GPU");
  check(cudaStreamSynchronize(nullptr), "clearing memory of a GPU");
}
DeviceMemory::~DeviceMemory() { static_cast<void>(cudaFree(data_)); }

void DeviceMemory::write(std::span<const std::byte> bytes, std::size_t offset) {
  if (offset > bytes_ || bytes.size() > bytes_ - offset) throw std::out_of_range("a write past the end of the memory");
  const OnDevice here(device_);
  check(cudaMemcpy(data_ + offset, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "copying to a GPU");
  // From pageable memory cudaMemcpy may return before the last bytes have arrived.
  check(cudaStreamSynchronize(nullptr), "copying to a GPU");
}
void DeviceMemory::read(std::span<std::byte> bytes, std::size_t offset) const {
  if (offset > bytes_ || bytes.size() > bytes_ - offset) throw std::out_of_range("a read past the end of the memory");
  const OnDevice here(device_);
  check(cudaMemcpy(bytes.data(), data_ + offset, bytes.size(), cudaMemcpyDeviceToHost), "copying from a GPU");
}
void DeviceMemory::copy_from(const DeviceMemory& other, cudaStream_t stream) {
  if (other.bytes_ != bytes_) throw std::invalid_argument("a copy between memories of different sizes");
  check(cudaMemcpyAsync(data_, other.data_, bytes_, cudaMemcpyDeviceToDevice, stream), "copying on a GPU");
}

MappedMemory::MappedMemory(std::size_t bytes) {
  check(cudaHostAlloc(&data_, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "allocating memory of the host");
  std::memset(data_, 0, bytes);
}
MappedMemory::~MappedMemory() { static_cast<void>(cudaFreeHost(data_)); }

HostWords::HostWords() : memory_(sizeof(Words)) { words() = {}; }
void HostWords::abort() { std::atomic_ref(words().abort).store(1, std::memory_order_relaxed); }
std::optional<Trouble> HostWords::trouble() const {
  const Trouble found = words().trouble;
  if (found.kind == Trouble::none) return std::nullopt;
  return found;
}

std::string export_memory(const std::byte* memory) {
  Exported exported{};
  exported.offset = offset_in_allocation(memory);
  check(cudaIpcGetMemHandle(&exported.handle, const_cast<std::byte*>(memory)), "exporting memory of a GPU");
  return {reinterpret_cast<const char*>(&exported), sizeof exported};
}

ImportedMemory::ImportedMemory(int device, std::string_view bytes) : device_(device) {
  Exported exported{};
  if (bytes.size() != sizeof exported) {
    throw std::invalid_argument("exported memory has " + std::to_string(sizeof exported) + " bytes; these are " +
                                std::to_string(bytes.size()));
  }
  std::memcpy(&exported, bytes.data(), sizeof exported);
  const OnDevice here(device);
  check(cudaIpcOpenMemHandle(&base_, exported.handle, cudaIpcMemLazyEnablePeerAccess),
        "opening another process's memory");
  data_ = static_cast<std::byte*>(base_) + exported.offset;
}
ImportedMemory::~ImportedMemory() {
  int before = 0;
  static_cast<void>(cudaGetDevice(&before));
  static_cast<void>(cudaSetDevice(device_));
  static_cast<void>(cudaIpcCloseMemHandle(base_));
  static_cast<void>(cudaSetDevice(before));
}

void copy(int device, std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t stream) {
  const OnDevice here(device);
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "copying between a GPU and the host");
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &capturing), "looking at the stream");
  return capturing != cudaStreamCaptureStatusNone;
}

Graph::Graph(cudaGraph_t captured) {
  const cudaError_t status = cudaGraphInstantiate(&executable_, captured, 0);
  static_cast<void>(cudaGraphDestroy(captured));
  check(status, "preparing a captured graph");
}
Graph::~Graph() { static_cast<void>(cudaGraphExecDestroy(executable_)); }
void Graph::launch(cudaStream_t stream) { check(cudaGraphLaunch(executable_, stream), "launching a graph"); }

Stream::Stream(int device) : device_(device) {
  const OnDevice here(device);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
}
Stream::~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
void Stream::synchronize() const { check(cudaStreamSynchronize(stream_), "waiting for a stream"); }
void Stream::wait_for(const Stream& other) {
  Event event(other.device_);
  event.record(other.stream_);
  event.precede(stream_);
}
void Stream::begin_capture() {
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "beginning to capture a stream");
}
std::unique_ptr<Graph> Stream::end_capture() {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream_, &graph), "ending the capture of a stream");
  return std::make_unique<Graph>(graph);
}

Event::Event(int device) : device_(device) {
  const OnDevice here(device);
  check(cudaEventCreate(&event_), "making an event");
}
Event::~Event() { static_cast<void>(cudaEventDestroy(event_)); }
void Event::record(cudaStream_t stream) {
  const OnDevice here(device_);
  check(cudaEventRecord(event_, stream), "recording an event");
}
void Event::precede(cudaStream_t stream) const {
  const OnDevice here(device_);
  check(cudaStreamWaitEvent(stream, event_, 0), "letting a stream wait for another");
}
bool Event::done() const {
  if (cudaEventQuery(event_) != cudaErrorNotReady) return true;
  static_cast<void>(cudaGetLastError());  // clears the error, which is only an answer here
  return false;
}
void Event::synchronize() const { check(cudaEventSynchronize(event_), "waiting for an event"); }
double Event::seconds_since(const Event& earlier) const {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "reading an event's time");
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace syntony::cuda
