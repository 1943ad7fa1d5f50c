// Tagged messages from and to device memory, by way of host memory. Each is sent as a whole through pinned memory of
// its own, and none waits for another: a receive is posted immediately, a send once its bytes are in host memory.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "torch/buffers.hpp"
#include "torch/device/stream_future.hpp"

namespace syntony::glue {

/// For one group and device. Thread-safe. They match only each other, not messages of CPU tensors, because their order
/// relative to those depends on when the device is ready.
class Messages {
 public:
  Messages(std::shared_ptr<Communicator> group, const c10::Device& device);
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  std::shared_ptr<StreamFuture> send(const std::byte* memory, std::size_t bytes, std::uint32_t destination,
                                     std::uint64_t tag, c10::Event ready, CallOptions options,
                                     std::shared_ptr<Buffers> buffers);
  std::shared_ptr<StreamFuture> receive(std::byte* memory, std::size_t bytes, int source, std::uint64_t tag,
                                        c10::Event ready, CallOptions options, std::shared_ptr<Buffers> buffers);

 private:
  static constexpr std::uint64_t kOfDevices = std::uint64_t{1} << 63;  // a bit that torch's tags never have

  void record(const Buffers& buffers, const c10::Stream& stream) const;
  void live();

  std::shared_ptr<Communicator> group_;
  c10::Device device_;
  c10::Stream outgoing_, incoming_;
  std::mutex mutex_;  // guards the next three
  std::condition_variable came_;
  std::deque<std::function<void()>> sends_;  // each waits for its bytes, so in order
  bool stop_ = false;
  std::thread thread_;  // last: uses everything above
};

}  // namespace syntony::glue
