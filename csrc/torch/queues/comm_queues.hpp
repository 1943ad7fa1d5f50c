// The communication of a training step and the threads that carry it out: one CommQueue per group.
//
//     trainer      ready(1) ready(2)      ready(0)                        wait(0)
//     launching                            [0][1]  ·   [2]    strictly the plan's order, `window` bytes in flight
//     completing                              0 ended   1 ended   ..      waits for each in turn, sums what came
//
// The order of a queue is the plan's and equal on all ranks of its group, so an op that is ready early waits for its
// turn: if each rank took what it had first, ranks would wait for each other forever. The order restarts with every
// step; a rank may make ops of the next step ready while those of the previous one are still in flight.
//
// Two threads per queue, so that an op whose turn has come is never delayed by waiting for another. Neither ever takes
// the interpreter's lock: used tensors are dropped by the next caller of ready(), wait() or ended(). One mutex guards
// everything here, except an op's tensors, which are touched by the thread whose turn it is.
//
// On a device, both threads have streams of their own. An op passed to ready() starts after the caller's current stream
// (an event); whoever waits for an op, or is told of its end, makes its stream wait for it, not the host.
#pragma once

#include <ATen/ATen.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "torch/device/streams.hpp"

namespace syntony::overlap {

enum class Move : std::uint8_t {
  all_reduce,      // input, in place; the backend decides the association
  reduce_scatter,  // input to output; otherwise the same
  exchange_sum,    // input to output: parts are exchanged and summed here, as a pairwise tree over ranks
  all_gather,
  all_to_all,  // by rows of the first dimension if given, else even parts
  broadcast,   // from rank `peer`, in place
  send,
  recv
};

/// One op of the plan. `bytes` count against the window. `next`: the op that starts when this one has ended, with this
/// one's output as input and its input as output (the second half of an all_reduce), or -1.
struct CommOp {
  std::string name;
  Move move = Move::all_reduce;
  std::size_t bytes = 0;
  int peer = -1;
  int tag = 0;
  int next = -1;
  bool announce = false;  // wait() reports its end
  std::size_t runs = 1;   // that may have been made ready and not ended; one at a time is launched
};

/// One queue: ops by their index, in launch order. `window` 0: no limit.
struct Order {
  std::string name;
  c10::intrusive_ptr<c10d::Backend> backend;
  std::vector<int> ops;
  std::size_t window = 0;
};

/// The tensors of one run of an op.
struct Task {
  at::Tensor input, output;
  std::vector<std::int64_t> input_rows{}, output_rows{};  // NOLINT(readability-redundant-member-init)
  std::optional<c10::Event> ready{};                      // on a device: its tensors are
};

/// When a run of an op was made ready, launched and completed: nanoseconds of the steady clock. `step` counts from 0.
struct Record {
  int op = 0;
  std::uint64_t step = 0;
  std::int64_t ready = 0, begin = 0, end = 0;
};

/// All queues of one rank. Thread-safe; created and closed by the trainer's thread.
class CommQueues {
 public:
  /// Throws c10::Error if an op is in no queue or in two.
  CommQueues(std::vector<CommOp> ops, std::vector<Order> orders);
  ~CommQueues();
  CommQueues(const CommQueues&) = delete;
  CommQueues& operator=(const CommQueues&) = delete;

  /// `op` may start when its turn comes; its tensors must not be touched before it has ended. Throws c10::Error if as
  /// many of its runs as it may have at a time have not ended yet.
  void ready(int op, Task task);
  /// Waits until `op` is idle (every run that was made ready has ended, but for the last `behind` ones, and no tensor
  /// of them is held), until ops with `announce` have ended, or until `patience` has passed. Returns true if it is
  /// idle, and the announced ops in the order in which they ended. Rethrows the error that ended a queue.
  std::pair<bool, std::vector<int>> wait(int op, std::chrono::milliseconds patience, std::size_t behind = 0);
  /// The announced ops that have ended, without waiting. Rethrows the error that ended a queue.
  std::vector<int> ended();
  /// The records since the last call.
  std::vector<Record> take_records();
  /// The op that failed and its step, or {-1, 0}.
  [[nodiscard]] std::pair<int, std::uint64_t> failed() const;
  /// Stops all threads. What is in flight is aborted and waited for.
  void close();

 private:
  struct State;  // of an op
  struct CommQueue;
  void launch_in_order(CommQueue& queue);
  void complete_in_order(CommQueue& queue);
  void fail(int op);
  [[nodiscard]] c10::intrusive_ptr<c10d::Work> start(CommQueue& queue, int op);
  void finish(CommQueue& queue, int op);
  void make_ready(int op, Task task);
  /// Makes the caller's current stream wait for the op's last end, if that was on a device.
  void follow(const State& state) const;
  std::vector<int> take_announced();
  void rethrow() const;

  std::vector<State> states_;
  std::vector<std::unique_ptr<CommQueue>> queues_;
  mutable std::mutex mutex_;         // guards everything here
  std::condition_variable at_rest_;  // something ended or failed
  std::vector<int> announced_;
  std::vector<Record> records_;
  std::vector<Task> used_;
  std::exception_ptr failure_;
  int failed_op_ = -1;
  bool stop_ = false;
};

}  // namespace syntony::overlap
