// What orders a device's work: torch's streams and events, in the form common to all its devices.
#pragma once

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstddef>
#include <cstdint>

namespace syntony::glue {

[[nodiscard]] inline bool has_streams(const c10::Device& device) {
  return at::accelerator::isAccelerator(device.type());
}

/// The calling thread's current stream.
[[nodiscard]] inline c10::Stream current_stream(const c10::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/// A stream that nothing else waits for.
[[nodiscard]] inline c10::Stream side_stream(const c10::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

/// An event that marks what the stream holds so far.
[[nodiscard]] inline c10::Event event_on(const c10::Stream& stream) {
  c10::Event event(stream.device_type());
  event.record(stream);
  return event;
}

/// True if the stream is being captured into a graph instead of run. Torch 2.11 cannot tell for devices in general.
template <typename Guard = c10::impl::VirtualGuardImpl>
[[nodiscard]] bool is_capturing(const c10::Stream& stream) {
  const Guard guard(stream.device_type());
  if constexpr (requires { guard.isStreamCapturing(stream); }) return guard.isStreamCapturing(stream);
  return false;
}

/// Device memory as a tensor that does not own it.
[[nodiscard]] inline at::Tensor memory_at(const std::byte* memory, std::size_t elements, at::ScalarType type,
                                          const c10::Device& device) {
  return at::for_blob(const_cast<std::byte*>(memory), {static_cast<std::int64_t>(elements)})
      .options(at::TensorOptions().dtype(type).device(device))
      .target_device(device)
      .make_tensor();
}
[[nodiscard]] inline at::Tensor bytes_at(const std::byte* memory, std::size_t bytes, const c10::Device& device) {
  return memory_at(memory, bytes, at::kByte, device);
}

/// Host memory that the device reads and writes asynchronously; torch reuses freed blocks.
[[nodiscard]] inline at::Tensor pinned_bytes(std::size_t bytes) {
  return at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
}

}  // namespace syntony::glue
