#include "torch/device/on_device.hpp"

#include <utility>

#include "torch/errors.hpp"

namespace syntony::glue {

std::shared_ptr<StreamFuture> OnDevice::run(Call call, const std::shared_ptr<Buffers>& buffers) {
  std::shared_ptr<ExecutorCalls> kernels;
  {
    const std::scoped_lock lock(mutex_);
    if (!std::exchange(asked_, true)) kernels_ = ExecutorCalls::form(group_, device_);
    kernels = kernels_;
  }
  call.options = as_here(std::move(call.options));
  const bool sums = call.collective == Collective::all_reduce || call.collective == Collective::reduce_scatter;
  if (sums && group_->canonical()) call.options.algorithm = "pairwise";
  if (kernels && kernels->takes(call)) {
    return kernels->run(kernels, call, event_on(current_stream(device_)), *buffers);
  }
  c10::Event ready = ready_to_stage();
  return staging().run(std::move(call), std::move(ready), buffers);
}

std::shared_ptr<StreamFuture> OnDevice::send(const std::byte* memory, std::size_t bytes, std::uint32_t destination,
                                             std::uint64_t tag, const CallOptions& options,
                                             const std::shared_ptr<Buffers>& buffers) {
  return messages().send(memory, bytes, destination, tag, ready_to_stage(), as_here(options), buffers);
}

std::shared_ptr<StreamFuture> OnDevice::receive(std::byte* memory, std::size_t bytes, int source, std::uint64_t tag,
                                                const CallOptions& options, const std::shared_ptr<Buffers>& buffers) {
  return messages().receive(memory, bytes, source, tag, ready_to_stage(), as_here(options), buffers);
}

std::shared_ptr<StreamFuture> OnDevice::barrier(const CallOptions& options, const std::shared_ptr<Buffers>& buffers) {
  c10::Event ready = ready_to_stage();
  return staging().barrier(as_here(options), std::move(ready), buffers);
}

c10::Event OnDevice::ready_to_stage() const {
  const c10::Stream stream = current_stream(device_);
  TORCH_CHECK(!is_capturing(stream), "syntony rank ", group_->rank(),
              ": this call goes through the host's memory, which a graph of ", device_, " cannot hold");
  return event_on(stream);
}

CallOptions OnDevice::as_here(CallOptions options) const {
  if (options.timeout.count() == 0) options.timeout = group_->timeout();
  if (!options.priority) options.priority = group_->priority();
  return options;
}

Staging& OnDevice::staging() {
  const std::scoped_lock lock(mutex_);
  if (!staging_) {
    auto group = process_->adopt(group_->split(0, group_->rank(), {.timeout = {}, .name = name_ + ", staged"}));
    staging_ = std::make_unique<Staging>(std::move(group), device_);
  }
  return *staging_;
}

Messages& OnDevice::messages() {
  const std::scoped_lock lock(mutex_);
  if (!messages_) messages_ = std::make_unique<Messages>(group_, device_);
  return *messages_;
}

void OnDevice::abort(const std::string& why) {
  const std::scoped_lock lock(mutex_);
  if (staging_) staging_->group().abort(why);
  if (kernels_) kernels_->abort(why);
}

void OnDevice::shutdown() {
  const std::scoped_lock lock(mutex_);
  if (staging_) staging_->group().shutdown();
  if (kernels_) std::exchange(kernels_, nullptr)->close();
}

std::exception_ptr OnDevice::error() {
  const std::scoped_lock lock(mutex_);
  return staging_ ? staging_->group().error() : nullptr;
}

}  // namespace syntony::glue
