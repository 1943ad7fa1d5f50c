#include "torch/device/messages.hpp"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace syntony::glue {

Messages::Messages(std::shared_ptr<Communicator> group, const c10::Device& device)
    : group_(std::move(group)), device_(device), outgoing_(side_stream(device)), incoming_(side_stream(device)) {
  thread_ = std::thread([this] { live(); });
  pthread_setname_np(thread_.native_handle(), "syntony sends");
}

Messages::~Messages() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  came_.notify_all();
  thread_.join();
}

void Messages::record(const Buffers& buffers, const c10::Stream& stream) const {
  const c10::impl::VirtualGuardImpl impl(device_.type());
  buffers.each([&](const at::Tensor& tensor) { impl.recordDataPtrOnStream(tensor.storage().data_ptr(), stream); });
}

std::shared_ptr<StreamFuture> Messages::send(const std::byte* memory, std::size_t bytes, std::uint32_t destination,
                                             std::uint64_t tag, c10::Event ready, CallOptions options,
                                             std::shared_ptr<Buffers> buffers) {
  record(*buffers, outgoing_);
  auto pinned = std::make_shared<at::Tensor>(pinned_bytes(std::max<std::size_t>(bytes, 1)));
  ready.block(outgoing_);
  const c10::StreamGuard guard(outgoing_);
  if (bytes > 0) pinned->copy_(bytes_at(memory, bytes, device_), /*non_blocking=*/true);
  const auto down = std::make_shared<c10::Event>(event_on(outgoing_));
  options.async = true;
  options.keep_alive = pinned;
  auto future = std::make_shared<StreamFuture>();
  {
    const std::scoped_lock lock(mutex_);
    sends_.emplace_back([group = group_, bytes, destination, tag, options, pinned, down, future] {
      try {
        down->synchronize();
        const auto work = group->send(static_cast<const std::byte*>(pinned->data_ptr()), bytes, destination,
                                      tag | kOfDevices, options);
        work->on_done(
            [work, down, future] { work->error() ? future->failed(work->error()) : future->queued(std::move(*down)); });
      } catch (...) {
        future->failed(std::current_exception());
      }
    });
  }
  came_.notify_one();
  return future;
}

std::shared_ptr<StreamFuture> Messages::receive(std::byte* memory, std::size_t bytes, int source, std::uint64_t tag,
                                                c10::Event ready, CallOptions options,
                                                std::shared_ptr<Buffers> buffers) {
  record(*buffers, incoming_);
  auto pinned = std::make_shared<at::Tensor>(pinned_bytes(std::max<std::size_t>(bytes, 1)));
  const auto free = std::make_shared<c10::Event>(std::move(ready));
  options.async = true;
  options.keep_alive = pinned;
  auto future = std::make_shared<StreamFuture>();
  const auto work =
      group_->receive(static_cast<std::byte*>(pinned->data_ptr()), bytes, source, tag | kOfDevices, options);
  work->on_done(
      [work, future, pinned, free, buffers = std::move(buffers), memory, bytes, device = device_, stream = incoming_] {
        try {
          if (work->error()) std::rethrow_exception(work->error());
          const c10::StreamGuard guard(stream);
          free->block(stream);
          if (bytes > 0) bytes_at(memory, bytes, device).copy_(*pinned, /*non_blocking=*/true);
          buffers->copy_back();
          future->queued(event_on(stream), work->source());
        } catch (...) {
          future->failed(std::current_exception());
        }
      });
  return future;
}

void Messages::live() {
  std::unique_lock lock(mutex_);
  while (true) {
    came_.wait(lock, [&] { return stop_ || !sends_.empty(); });
    if (sends_.empty()) return;
    const std::function<void()> send = std::move(sends_.front());
    sends_.pop_front();
    lock.unlock();
    send();
    lock.lock();
  }
}

}  // namespace syntony::glue
