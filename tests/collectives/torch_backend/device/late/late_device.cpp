// The late device as seen by torch: a PrivateUse1 backend with streams, events, an allocator and copies of its own.
// Every other operator is computed by the CPU, between two copies that the caller waits for.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <optional>

#include "late_memory.hpp"
#include "late_streams.hpp"

namespace late {
namespace {

constexpr c10::DeviceType kLate = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kLate, 0);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kLate; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  static c10::Stream named(std::int64_t id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }
  c10::Stream getStream(c10::Device) const override { return named(current_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return named(0); }
  c10::Stream getNewStream(c10::Device, int) const override { return named(next_side_stream()); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return named(next_side_stream()); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    return named(std::exchange(current_stream, next.id()));
  }
  bool queryStream(const c10::Stream& of) const override { return stream(of.id()).idle(); }
  void synchronizeStream(const c10::Stream& of) const override { stream(of.id()).synchronize(); }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    for (std::int64_t id = 0; id < kStreams; ++id) stream(id).synchronize();
  }

  static Event& event_of(void* event) { return *static_cast<Event*>(event); }
  void record(void** event, const c10::Stream& in, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event();
    event_of(*event).record(stream(in.id()));
  }
  void block(void* event, const c10::Stream& in) const override { event_of(event).block(stream(in.id())); }
  bool queryEvent(void* event) const override { return event_of(event).query(); }
  void synchronizeEvent(void* event) const override { event_of(event).synchronize(); }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& on) const override;
};

void free_block(void* block) { memory().give_back(static_cast<Block*>(block)); }
void free_pinned(void* data) { pinned().give_back(data); }

void Guard::recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& on) const {
  if (data.get_deleter() == &free_block) memory().record(static_cast<Block*>(data.get_context()), on.id());
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, kDevice};
    Block* const block = memory().take(bytes);
    return {block->memory, block, &free_block, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = pinned().take(std::max<std::size_t>(bytes, 1));
    return {data, data, &free_pinned, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isPinnedPtr(const void* data) const override { return pinned().holds(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static PinnedAllocator allocator;
    return &allocator;
  }
  at::Device getDeviceFromPtr(void*) const override { return kDevice; }
};

// ---- operators ------------------------------------------------------------------------------------------------------

Allocator allocator;
constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> type, std::optional<c10::Layout>,
                 std::optional<c10::Device>, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, kKeys, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> type,
                         std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator, kKeys, c10::dtype_or_default(type));
}

/// The same memory, for host kernels; keeps nothing alive.
at::Tensor seen_by_host(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

/// Runs in the current stream. A copy that involves unpinned host memory is complete when it returns; pinned memory is
/// kept alive, as by a real device's caching allocator. Device memory is not.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  const bool uploads = from.is_cpu(), downloads = to.is_cpu();
  std::optional<at::Storage> kept;
  if (uploads) kept = from.storage();
  if (downloads) kept = to.storage();
  const at::Tensor& host = uploads ? from : to;
  const bool waits = kept && (!non_blocking || !pinned().holds(host.data_ptr()));
  Stream& in = stream(current_stream);
  in.put([source = seen_by_host(from), target = seen_by_host(to), kept] {
    const c10::NoGradGuard no_grad;
    target.copy_(source.expand_as(target));
  });
  if (waits) in.synchronize();
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  at::native::resize_(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  stream(current_stream).synchronize();
  return seen_by_host(tensor).item();
}

at::Tensor as_strided(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride,
                      std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset, c10::IntArrayRef size,
                        c10::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", [](const at::Tensor& self, c10::IntArrayRef size) { return at::native::view(self, size); });
  m.impl("_reshape_alias", [](const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride) {
    return at::native::_reshape_alias(self, size, stride);
  });
  m.impl(
      "resize_",
      [](const at::Tensor& self, c10::IntArrayRef size, std::optional<at::MemoryFormat> format) -> const at::Tensor& {
        return at::native::resize_(self, size, format);
      });
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("set_.source_Tensor", [](at::Tensor& self, const at::Tensor& source) -> at::Tensor& {
    return at::native::set_tensor_(self, source);
  });
  m.impl("set_.source_Storage",
         [](at::Tensor& self, at::Storage source) -> at::Tensor& { return at::native::set_(self, std::move(source)); });
  m.impl("set_.source_Storage_storage_offset", set_storage);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>()); }

TORCH_LIBRARY(late, m) {
  m.def("lateness(int microseconds, int side) -> ()", [](std::int64_t us, std::int64_t side_us) {
    lateness_us = static_cast<int>(us);
    side_lateness_us = static_cast<int>(side_us);
  });
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

namespace {
const bool registered = [] {
  c10::SetAllocator(kLate, &allocator);
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  return true;
}();
}  // namespace

}  // namespace late
