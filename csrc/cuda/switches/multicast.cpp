#include "cuda/switches/multicast.hpp"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "cuda/cuda_objects.hpp"
#include "cuda/driver.hpp"

namespace syntony::cuda {
namespace {

constexpr CUmemAllocationHandleType kHandle = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

struct Exported {
  std::int32_t process;
  std::int32_t descriptor;
};

CUmulticastObjectProp object_of(std::uint32_t ranks, std::size_t bytes) {
  CUmulticastObjectProp wanted{};
  wanted.numDevices = ranks;
  wanted.size = bytes;
  wanted.handleTypes = kHandle;
  return wanted;
}

CUmemAllocationProp memory_on(int device) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = {};
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  wanted.requestedHandleTypes = kHandle;
  return wanted;
}

std::size_t whole(std::size_t bytes, std::size_t granularity) {
  return (bytes + granularity - 1) / granularity * granularity;
}

/// A descriptor in this process for the other process's `exported.descriptor`.
int fetch(const Exported& exported) {
  if (exported.process == getpid()) {
    const int mine = fcntl(exported.descriptor, F_DUPFD_CLOEXEC, 0);
    if (mine >= 0) return mine;
  } else {
    const auto process = static_cast<int>(syscall(SYS_pidfd_open, exported.process, 0));
    if (process >= 0) {
      const auto mine = static_cast<int>(syscall(SYS_pidfd_getfd, process, exported.descriptor, 0));
      const int error = errno;
      close(process);
      if (mine >= 0) return mine;
      errno = error;
    }
  }
  throw std::runtime_error("fetching the multicast object of process " + std::to_string(exported.process) +
                           " failed: " + std::strerror(errno));
}

}  // namespace

/// The driver functions that multicast objects need.
struct Multicast::Driver {
  decltype(&cuMulticastCreate) create = driver_function<decltype(&cuMulticastCreate)>("cuMulticastCreate");
  decltype(&cuMulticastAddDevice) add = driver_function<decltype(&cuMulticastAddDevice)>("cuMulticastAddDevice");
  decltype(&cuMulticastBindMem) bind = driver_function<decltype(&cuMulticastBindMem)>("cuMulticastBindMem");
  decltype(&cuMulticastUnbind) unbind = driver_function<decltype(&cuMulticastUnbind)>("cuMulticastUnbind");
  decltype(&cuMulticastGetGranularity) object_granularity =
      driver_function<decltype(&cuMulticastGetGranularity)>("cuMulticastGetGranularity");
  decltype(&cuMemGetAllocationGranularity) memory_granularity =
      driver_function<decltype(&cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
  decltype(&cuMemExportToShareableHandle) share =
      driver_function<decltype(&cuMemExportToShareableHandle)>("cuMemExportToShareableHandle");
  decltype(&cuMemImportFromShareableHandle) import =
      driver_function<decltype(&cuMemImportFromShareableHandle)>("cuMemImportFromShareableHandle");
  decltype(&cuMemCreate) allocate = driver_function<decltype(&cuMemCreate)>("cuMemCreate");
  decltype(&cuMemRelease) release = driver_function<decltype(&cuMemRelease)>("cuMemRelease");
  decltype(&cuMemAddressReserve) reserve = driver_function<decltype(&cuMemAddressReserve)>("cuMemAddressReserve");
  decltype(&cuMemAddressFree) unreserve = driver_function<decltype(&cuMemAddressFree)>("cuMemAddressFree");
  decltype(&cuMemMap) map = driver_function<decltype(&cuMemMap)>("cuMemMap");
  decltype(&cuMemUnmap) unmap = driver_function<decltype(&cuMemUnmap)>("cuMemUnmap");
  decltype(&cuMemSetAccess) allow = driver_function<decltype(&cuMemSetAccess)>("cuMemSetAccess");

  /// The granularity of objects and memory in bytes.
  [[nodiscard]] std::size_t granularity(int device, std::uint32_t ranks, std::size_t bytes) const {
    const CUmulticastObjectProp object = object_of(ranks, bytes);
    const CUmemAllocationProp memory = memory_on(device);
    std::size_t one = 0, other = 0;
    check(object_granularity(&one, &object, CU_MULTICAST_GRANULARITY_RECOMMENDED), "asking how multicast is cut");
    check(memory_granularity(&other, &memory, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), "asking how memory is cut");
    return std::max(one, other);
  }
};

Multicast::Multicast(int device, std::uint32_t ranks, std::size_t bytes)
    : device_(device), ranks_(ranks), bytes_(bytes) {
  use(device);  // initializes CUDA on the device
  if (!supports_multicast(device)) {
    throw std::invalid_argument("GPU " + std::to_string(device) + " (" + describe(device).name +
                                ") cannot join a multicast object: that needs NVLink switches, and Hopper or later");
  }
  const Driver driver;
  bytes_ = whole(bytes, driver.granularity(device, ranks, bytes));
  const CUmulticastObjectProp wanted = object_of(ranks, bytes_);
  check(driver.create(&object_, &wanted), "making a multicast object");
  const CUresult status = driver.share(&shared_, object_, kHandle, 0);
  if (status != CUDA_SUCCESS) release();
  check(status, "sharing a multicast object");
  // Sibling processes are not each other's parents.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

Multicast::Multicast(int device, std::uint32_t ranks, std::size_t bytes, std::string_view exported)
    : device_(device), ranks_(ranks), bytes_(bytes) {
  Exported from{};
  if (exported.size() != sizeof from) {
    throw std::invalid_argument("an exported multicast object has " + std::to_string(sizeof from) +
                                " bytes; these are " + std::to_string(exported.size()));
  }
  std::memcpy(&from, exported.data(), sizeof from);
  use(device);
  const Driver driver;
  bytes_ = whole(bytes, driver.granularity(device, ranks, bytes));
  const int mine = fetch(from);
  const CUresult status = driver.import(&object_, reinterpret_cast<void*>(static_cast<std::intptr_t>(mine)), kHandle);
  close(mine);
  check(status, "opening a multicast object");
}

Multicast::~Multicast() { release(); }

std::string Multicast::exported() const {
  const Exported exported{static_cast<std::int32_t>(getpid()), shared_};
  return {reinterpret_cast<const char*>(&exported), sizeof exported};
}

void Multicast::join() {
  check(Driver().add(object_, device_), "joining a multicast object with GPU " + std::to_string(device_));
  joined_ = true;
}

void Multicast::bind() {
  if (!joined_) throw std::invalid_argument("join() comes before bind()");
  const OnDevice here(device_);
  const Driver driver;
  const CUmemAllocationProp wanted = memory_on(device_);
  check(driver.allocate(&memory_, bytes_, &wanted, 0), "allocating " + std::to_string(bytes_) + " bytes for multicast");
  check(driver.bind(object_, 0, memory_, 0, bytes_, 0), "binding memory to a multicast object");
  bound_ = true;
  own_ = map(memory_);
  all_ = map(object_);
  check(cudaMemset(own(), 0, bytes_), "clearing memory of a GPU");
  check(cudaStreamSynchronize(nullptr), "clearing memory of a GPU");
}

CUdeviceptr Multicast::map(CUmemGenericAllocationHandle handle) {
  const Driver driver;
  CUdeviceptr address = 0;
  check(driver.reserve(&address, bytes_, 0, 0, 0), "reserving addresses");
  const CUresult status = driver.map(address, bytes_, 0, handle, 0);
  if (status != CUDA_SUCCESS) driver.unreserve(address, bytes_);
  check(status, "mapping memory of a GPU");
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device_;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const CUresult allowed = driver.allow(address, bytes_, &access, 1);
  if (allowed != CUDA_SUCCESS) unmap(address);
  check(allowed, "allowing a GPU to reach its memory");
  return address;
}

void Multicast::unmap(CUdeviceptr address) noexcept {
  if (address == 0) return;
  const Driver driver;
  driver.unmap(address, bytes_);
  driver.unreserve(address, bytes_);
}

void Multicast::release() noexcept {
  unmap(all_);
  unmap(own_);
  const Driver driver;
  if (bound_) driver.unbind(object_, device_, 0, bytes_);
  if (memory_ != 0) driver.release(memory_);
  if (object_ != 0) driver.release(object_);
  if (shared_ >= 0) close(shared_);
}

}  // namespace syntony::cuda
