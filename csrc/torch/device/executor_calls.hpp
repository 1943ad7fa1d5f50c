// Collectives by the CUDA executor's kernels, which Python knows (collectives/cuda/torch_calls.py): a side stream of
// the group's own waits for the caller's, runs the kernel, and leaves an event.
#pragma once

#include <memory>
#include <string>

#include "core/group/communicator.hpp"
#include "torch/buffers.hpp"
#include "torch/device/stream_future.hpp"

namespace syntony::glue {

/// Of one group and device. Thread-safe: the interpreter's lock is its own, so nobody may call it who holds something
/// that a holder of that lock could wait for.
class ExecutorCalls {
 public:
  /// Null, at all ranks, where a rank has no part in it: another device, several hosts, no executor. Collective.
  static std::shared_ptr<ExecutorCalls> form(const std::shared_ptr<Communicator>& group, const c10::Device& device);
  ~ExecutorCalls();
  ExecutorCalls(const ExecutorCalls&) = delete;
  ExecutorCalls& operator=(const ExecutorCalls&) = delete;

  /// Whether the kernels do it; all ranks say the same.
  [[nodiscard]] bool takes(const Call& call);
  /// `self` is this one: who asks for the future hears of a lost rank.
  std::shared_ptr<StreamFuture> run(const std::shared_ptr<ExecutorCalls>& self, const Call& call,
                                    const c10::Event& ready, Buffers& buffers);
  /// Throws what has gone wrong so far.
  void check();
  /// Ends the kernels of all ranks.
  void abort(const std::string& why);
  /// Waits for what was launched, and for the other ranks.
  void close();

 private:
  struct Group;  // Python's
  ExecutorCalls(std::unique_ptr<Group> group, const c10::Device& device, std::uint32_t ranks);

  std::unique_ptr<Group> group_;
  c10::Device device_;
  c10::Stream stream_;
  std::uint32_t ranks_;
};

}  // namespace syntony::glue
