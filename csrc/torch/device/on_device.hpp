// One group's calls on tensors of one device, and the path each takes:
//
//     kernels   the CUDA executor takes the call, and all ranks are on one host      executor_calls.hpp
//     staged    everything else: through pinned memory and the transports            staging.hpp, messages.hpp
//
// The path follows from what all ranks know. Each path has a group of its own, split off at its first call, because the
// order of these calls is independent of that of calls on the CPU.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "bindings/core/group/process.hpp"
#include "torch/device/executor_calls.hpp"
#include "torch/device/messages.hpp"
#include "torch/device/staging.hpp"

namespace syntony::glue {

/// Thread-safe, as far as ranks agree on the order of calls. Errors go to the StreamFuture, or are c10::Error.
class OnDevice {
 public:
  /// `name` is the group's, for messages.
  OnDevice(std::shared_ptr<Process> process, std::shared_ptr<Communicator> group, const c10::Device& device,
           std::string name)
      : process_(std::move(process)), group_(std::move(group)), device_(device), name_(std::move(name)) {}

  [[nodiscard]] const c10::Device& device() const { return device_; }

  /// The call starts after what the caller's current stream holds now. `buffers` hold the memory.
  std::shared_ptr<StreamFuture> run(Call call, const std::shared_ptr<Buffers>& buffers);
  std::shared_ptr<StreamFuture> send(const std::byte* memory, std::size_t bytes, std::uint32_t destination,
                                     std::uint64_t tag, const CallOptions& options,
                                     const std::shared_ptr<Buffers>& buffers);
  std::shared_ptr<StreamFuture> receive(std::byte* memory, std::size_t bytes, int source, std::uint64_t tag,
                                        const CallOptions& options, const std::shared_ptr<Buffers>& buffers);
  std::shared_ptr<StreamFuture> barrier(const CallOptions& options, const std::shared_ptr<Buffers>& buffers);

  void abort(const std::string& why);
  void shutdown();
  /// What ended the group of a path, or null.
  [[nodiscard]] std::exception_ptr error();

 private:
  /// An event on the caller's current stream, which must not be capturing.
  [[nodiscard]] c10::Event ready_to_stage() const;
  /// As the group would run it on the CPU.
  [[nodiscard]] CallOptions as_here(CallOptions options) const;
  Staging& staging();
  Messages& messages();

  std::shared_ptr<Process> process_;
  std::shared_ptr<Communicator> group_;
  c10::Device device_;
  std::string name_;
  std::mutex mutex_;  // guards the rest, even while they are created, which is collective
  bool asked_ = false;
  std::shared_ptr<ExecutorCalls> kernels_;  // null if there are none
  std::unique_ptr<Staging> staging_;        // created when needed, like the next
  std::unique_ptr<Messages> messages_;
};

}  // namespace syntony::glue
