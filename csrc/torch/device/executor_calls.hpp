// Collectives by the CUDA executor's kernels, which are driven from Python (collectives/cuda/torch_calls.py): a side
// stream of the group waits for the caller's, runs the kernel, and records an event.
#pragma once

#include <memory>
#include <string>

#include "core/group/communicator.hpp"
#include "torch/buffers.hpp"
#include "torch/device/stream_future.hpp"

namespace syntony::glue {

/// For one group and device. Thread-safe. It takes the interpreter's lock, so callers must not hold anything that a
/// holder of that lock could wait for.
class ExecutorCalls {
 public:
  /// Null on all ranks if one of them cannot take part: another device, several hosts, no executor. Collective.
  static std::shared_ptr<ExecutorCalls> form(const std::shared_ptr<Communicator>& group, const c10::Device& device);
  ~ExecutorCalls();
  ExecutorCalls(const ExecutorCalls&) = delete;
  ExecutorCalls& operator=(const ExecutorCalls&) = delete;

  /// True if the kernels can run it; the same on all ranks.
  [[nodiscard]] bool takes(const Call& call);
  /// `self` is this object: a caller that queries the future learns of a lost rank.
  std::shared_ptr<StreamFuture> run(const std::shared_ptr<ExecutorCalls>& self, const Call& call,
                                    const c10::Event& ready, Buffers& buffers);
  /// Rethrows any failure so far.
  void check();
  /// Ends the kernels of all ranks.
  void abort(const std::string& why);
  /// Waits for what was launched, and for the other ranks.
  void close();

 private:
  struct Group;  // the Python object
  ExecutorCalls(std::unique_ptr<Group> group, const c10::Device& device, std::uint32_t ranks);

  std::unique_ptr<Group> group_;
  c10::Device device_;
  c10::Stream stream_;
  std::uint32_t ranks_;
};

}  // namespace syntony::glue
