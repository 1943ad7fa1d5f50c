// The communication of a training step, on the threads that carry it out: one CommQueue per group.
//
//     trainer      ready(1) ready(2)      ready(0)                        wait(0)
//     launching                            [0][1]  ·   [2]    strictly the plan's order, `window` bytes in flight
//     completing                              0 ended   1 ended   ..      waits for each in turn, sums what came
//
// The order of a queue is the plan's and equal on all ranks of its group, so what is ready early waits for its turn:
// ranks that each took what they had first would wait for each other for ever. Step after step the order starts again;
// a rank may make ops of the next step ready while those of the last one still move.
//
// Two threads per queue, so that an op whose turn has come never waits for somebody who waits. None of them ever wants
// the interpreter's lock: tensors that were used are dropped by the next caller of ready(). Everything here is guarded
// by one mutex; an op's tensors are touched outside of it, by the thread whose turn it is.
//
// On a device both threads have streams of their own. What ready() hears of starts after the caller's current stream
// (an event), and who waits for an op, or hears of its end, has his stream wait for it, not himself.
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
  all_reduce,      // input, in place; the backend decides how it is associated
  reduce_scatter,  // input to output; likewise
  exchange_sum,    // input to output: parts are exchanged and summed here, as a pairwise tree over ranks
  all_gather,
  all_to_all,  // rows of the first dimension where they are given, else even parts
  broadcast,   // from rank `peer`, in place
  send,
  recv
};

/// One op of the plan. `bytes` count against the window. `next`: the op that starts with this one's output as input
/// and its input as output when this one has ended (the second half of an all_reduce), or -1.
struct CommOp {
  std::string name;
  Move move = Move::all_reduce;
  std::size_t bytes = 0;
  int peer = -1;
  int tag = 0;
  int next = -1;
  bool announce = false;  // wait() tells of its end
};

/// One queue: ops by their index, in the order in which they are launched. `window` 0: no limit.
struct Order {
  std::string name;
  c10::intrusive_ptr<c10d::Backend> backend;
  std::vector<int> ops;
  std::size_t window = 0;
};

/// What an op moves this time.
struct Task {
  at::Tensor input, output;
  std::vector<std::int64_t> input_rows{}, output_rows{};  // NOLINT(readability-redundant-member-init)
  std::optional<c10::Event> ready{};                      // on a device: its tensors are
};

/// When an op's run was made ready, launched and over: nanoseconds of the steady clock. `step` counts from 0.
struct Record {
  int op = 0;
  std::uint64_t step = 0;
  std::int64_t ready = 0, begin = 0, end = 0;
};

/// All queues of one rank. Thread-safe; made and closed by the trainer's thread.
class CommQueues {
 public:
  /// Throws c10::Error when an op is in no queue or in two.
  CommQueues(std::vector<CommOp> ops, std::vector<Order> orders);
  ~CommQueues();
  CommQueues(const CommQueues&) = delete;
  CommQueues& operator=(const CommQueues&) = delete;

  /// `op` may start when its turn comes; its tensors must not be touched before it has ended. Throws c10::Error when
  /// its last run has not ended yet.
  void ready(int op, Task task);
  /// Waits until `op` is at rest (every run that was made ready has ended), until ops with `announce` have ended, or
  /// until `patience` has passed: true when at rest, and the announced ones in the order of their ends. Throws what
  /// ended a queue.
  std::pair<bool, std::vector<int>> wait(int op, std::chrono::milliseconds patience);
  /// The announced ones that have ended, without waiting. Throws what ended a queue.
  std::vector<int> ended();
  /// The records since the last call.
  std::vector<Record> take_records();
  /// The op that failed and its step, or {-1, 0}.
  [[nodiscard]] std::pair<int, std::uint64_t> failed() const;
  /// No thread is left afterwards. What is in flight is aborted, and waited for.
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
  /// The caller's current stream waits for the op's last end, if that was on a device.
  void follow(const State& state) const;
  std::vector<int> take_announced();
  void rethrow() const;

  std::vector<State> states_;
  std::vector<std::unique_ptr<CommQueue>> queues_;
  mutable std::mutex mutex_;         // guards all of it, and the next
  std::condition_variable at_rest_;  // something ended or failed
  std::vector<int> announced_;
  std::vector<Record> records_;
  std::vector<Task> used_;
  std::exception_ptr failure_;
  int failed_op_ = -1;
  bool stop_ = false;
};

}  // namespace syntony::overlap
