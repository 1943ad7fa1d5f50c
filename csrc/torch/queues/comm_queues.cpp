#include "torch/queues/comm_queues.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "torch/queues/tree_sum.hpp"

namespace syntony::overlap {

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// A thread's stream on the device of its queue's tensors, replaced if they move to another device.
class OwnStream {
 public:
  void enter(const c10::Device& device) {
    if (guard_ && guard_->current_device() == device) return;
    guard_.reset();
    guard_.emplace(glue::side_stream(device));
  }
  [[nodiscard]] c10::Stream stream() const { return guard_->current_stream(); }

 private:
  std::optional<c10::StreamGuard> guard_;
};

}  // namespace

struct CommQueues::State {
  CommOp op;
  CommQueue* queue = nullptr;
  Task task;                 // of the current run
  std::deque<Task> waiting;  // of the next ones
  std::uint64_t asked = 0;   // runs that were made ready, or will be by the preceding op
  std::uint64_t ended = 0;
  bool busy = false;              // it has a current run
  bool ready = false;             // and not launched yet
  std::optional<c10::Event> end;  // of the last run, on a device
  Record record;
};

struct CommQueues::CommQueue {
  Order order;
  std::size_t cursor = 0;
  std::size_t bytes = 0;  // in flight
  std::deque<std::pair<int, WorkPtr>> flying;
  std::deque<at::Tensor> received;  // of exchange_sum: received parts, in launch order
  std::vector<at::Tensor> spare;
  std::condition_variable next;    // the next op is ready or fits
  std::condition_variable flight;  // something was launched
  std::thread launching, completing;
};

CommQueues::CommQueues(std::vector<CommOp> ops, std::vector<Order> orders) : states_(ops.size()) {
  for (std::size_t op = 0; op < ops.size(); ++op) states_[op].op = std::move(ops[op]);
  for (Order& order : orders) {
    CommQueue& queue = *queues_.emplace_back(std::make_unique<CommQueue>());
    queue.order = std::move(order);
    for (const int op : queue.order.ops) {
      State& state = states_.at(static_cast<std::size_t>(op));
      TORCH_CHECK(state.queue == nullptr, "op ", state.op.name, " is in the order of two queues");
      state.queue = &queue;
    }
  }
  for (const State& state : states_) TORCH_CHECK(state.queue != nullptr, "op ", state.op.name, " is in no queue");
  for (const auto& queue : queues_) {
    queue->launching = std::thread([this, &queue = *queue] { launch_in_order(queue); });
    queue->completing = std::thread([this, &queue = *queue] { complete_in_order(queue); });
    const std::string name = "queue " + queue->order.name.substr(0, 9);
    pthread_setname_np(queue->launching.native_handle(), name.c_str());
    pthread_setname_np(queue->completing.native_handle(), name.c_str());
  }
}

CommQueues::~CommQueues() { close(); }

void CommQueues::close() {
  bool busy = false;
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    for (const auto& queue : queues_) {
      busy = busy || !queue->flying.empty();
      queue->next.notify_all();
      queue->flight.notify_all();
    }
  }
  for (const auto& queue : queues_) {
    if (busy && queue->launching.joinable()) queue->order.backend->abort();
    if (queue->launching.joinable()) queue->launching.join();
    if (queue->completing.joinable()) queue->completing.join();
  }
}

void CommQueues::ready(int op, Task task) {
  std::vector<Task> used;  // destroyed last, without holding the mutex
  const c10::Device device = task.input.device();
  if (glue::has_streams(device)) task.ready = glue::event_on(glue::current_stream(device));
  const std::scoped_lock lock(mutex_);
  used.swap(used_);
  rethrow();
  State& state = states_.at(static_cast<std::size_t>(op));
  TORCH_CHECK(state.asked - state.ended < state.op.runs, "op ", state.op.name,
              " is made ready again before its last run has ended");
  TORCH_CHECK(device.is_cpu() || state.op.move != Move::exchange_sum, "op ", state.op.name, ": sums on ", device,
              " are made by Syntony's backend only");
  ++state.asked;
  for (int next = state.op.next; next >= 0; next = states_[static_cast<std::size_t>(next)].op.next) {
    ++states_[static_cast<std::size_t>(next)].asked;
  }
  make_ready(op, std::move(task));
}

void CommQueues::make_ready(int op, Task task) {
  State& state = states_[static_cast<std::size_t>(op)];
  if (std::exchange(state.busy, true)) {
    state.waiting.push_back(std::move(task));
    return;
  }
  state.task = std::move(task);
  state.ready = true;
  state.record = {.op = op, .step = state.ended, .ready = now()};
  state.queue->next.notify_one();
}

std::pair<bool, std::vector<int>> CommQueues::wait(int op, std::chrono::milliseconds patience, std::size_t behind) {
  std::vector<Task> used;
  std::unique_lock lock(mutex_);
  const State& state = states_.at(static_cast<std::size_t>(op));
  const auto rests = [&] { return state.asked - state.ended <= behind; };
  at_rest_.wait_for(lock, patience, [&] { return failure_ || rests() || !announced_.empty(); });
  used.swap(used_);
  rethrow();
  const bool at_rest = rests();
  if (at_rest) follow(state);
  return {at_rest, take_announced()};
}

std::vector<int> CommQueues::ended() {
  std::vector<Task> used;
  const std::scoped_lock lock(mutex_);
  used.swap(used_);
  rethrow();
  return take_announced();
}

std::vector<int> CommQueues::take_announced() {
  for (const int op : announced_) follow(states_[static_cast<std::size_t>(op)]);
  return std::exchange(announced_, {});
}

void CommQueues::follow(const State& state) const {
  if (state.end) state.end->block(glue::current_stream(state.end->device()));
}

std::vector<Record> CommQueues::take_records() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(records_, {});
}

std::pair<int, std::uint64_t> CommQueues::failed() const {
  const std::scoped_lock lock(mutex_);
  if (failed_op_ < 0) return {-1, 0};
  return {failed_op_, states_[static_cast<std::size_t>(failed_op_)].ended};
}

void CommQueues::rethrow() const {
  if (failure_) std::rethrow_exception(failure_);
}

void CommQueues::fail(int op) {
  const std::scoped_lock lock(mutex_);
  if (!failure_) {
    failure_ = std::current_exception();
    failed_op_ = op;
  }
  at_rest_.notify_all();
  for (const auto& queue : queues_) {
    queue->next.notify_all();
    queue->flight.notify_all();
  }
}

// ---- the two threads of a queue -------------------------------------------------------------------------------------

void CommQueues::launch_in_order(CommQueue& queue) {
  if (queue.order.ops.empty()) return;
  OwnStream own;
  std::unique_lock lock(mutex_);
  while (true) {
    const int op = queue.order.ops[queue.cursor];
    State& state = states_[static_cast<std::size_t>(op)];
    queue.next.wait(lock, [&] {
      const bool fits =
          queue.order.window == 0 || queue.bytes == 0 || queue.bytes + state.op.bytes <= queue.order.window;
      return stop_ || failure_ || (state.ready && fits);
    });
    if (stop_ || failure_) return;
    state.ready = false;
    state.record.begin = now();
    queue.bytes += state.op.bytes;
    lock.unlock();
    try {
      if (const std::optional<c10::Event>& ready = state.task.ready) {
        own.enter(ready->device());
        ready->block(own.stream());
      }
      WorkPtr work = start(queue, op);
      lock.lock();
      queue.flying.emplace_back(op, std::move(work));
    } catch (...) {
      return fail(op);
    }
    queue.flight.notify_one();
    queue.cursor = (queue.cursor + 1) % queue.order.ops.size();
  }
}

void CommQueues::complete_in_order(CommQueue& queue) {
  OwnStream own;
  std::unique_lock lock(mutex_);
  while (true) {
    queue.flight.wait(lock, [&] { return !queue.flying.empty() || stop_ || failure_; });
    if (queue.flying.empty()) return;
    const auto [op, work] = queue.flying.front();
    State& state = states_[static_cast<std::size_t>(op)];
    const bool on_device = state.task.ready.has_value();
    lock.unlock();
    try {
      if (on_device) own.enter(state.task.ready->device());
      if (work) work->wait();
      finish(queue, op);
    } catch (...) {
      return fail(op);
    }
    lock.lock();
    if (on_device) state.end = glue::event_on(own.stream());
    queue.flying.pop_front();
    queue.bytes -= state.op.bytes;
    state.record.end = now();
    records_.push_back(state.record);
    ++state.ended;
    const Task& task = used_.emplace_back(std::exchange(state.task, {}));
    if (state.op.next >= 0) {
      Task next{.input = task.output, .output = task.input};
      if (on_device) next.ready = glue::event_on(own.stream());
      make_ready(state.op.next, std::move(next));
    }
    state.busy = false;
    if (!state.waiting.empty()) {
      Task following = std::move(state.waiting.front());
      state.waiting.pop_front();
      make_ready(op, std::move(following));
    }
    if (state.op.announce) announced_.push_back(op);
    queue.next.notify_one();
    at_rest_.notify_all();
  }
}

// ---- what an op does ------------------------------------------------------------------------------------------------

WorkPtr CommQueues::start(CommQueue& queue, int op) {
  State& state = states_[static_cast<std::size_t>(op)];
  Task& task = state.task;
  c10d::Backend& backend = *queue.order.backend;
  std::vector<at::Tensor> one{task.input};
  switch (state.op.move) {
    case Move::all_reduce:
      return backend.allreduce(one);
    case Move::reduce_scatter:
      return backend._reduce_scatter_base(task.output, task.input);
    case Move::all_gather:
      return backend._allgather_base(task.output, task.input);
    case Move::all_to_all:
      return backend.alltoall_base(task.output, task.input, task.output_rows, task.input_rows);
    case Move::broadcast: {
      c10d::BroadcastOptions options;
      options.rootRank = state.op.peer;
      return backend.broadcast(one, options);
    }
    case Move::send:
      return backend.send(one, state.op.peer, state.op.tag);
    case Move::recv:
      return backend.recv(one, state.op.peer, state.op.tag);
    case Move::exchange_sum:
      break;
  }
  at::Tensor terms;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = std::ranges::find_if(queue.spare, [&](const at::Tensor& spare) {
      return spare.numel() >= task.input.numel() && spare.scalar_type() == task.input.scalar_type();
    });
    if (found != queue.spare.end()) {
      terms = *found;
      queue.spare.erase(found);
    }
  }
  if (!terms.defined()) terms = at::empty({task.input.numel()}, task.input.options());
  at::Tensor exchanged = terms.narrow(0, 0, task.input.numel());
  WorkPtr work = backend.alltoall_base(exchanged, task.input, task.output_rows, task.input_rows);
  const std::scoped_lock lock(mutex_);
  queue.received.push_back(std::move(terms));
  return work;
}

void CommQueues::finish(CommQueue& queue, int op) {
  State& state = states_[static_cast<std::size_t>(op)];
  if (state.op.move != Move::exchange_sum) return;
  at::Tensor terms;
  {
    const std::scoped_lock lock(mutex_);
    terms = std::move(queue.received.front());
    queue.received.pop_front();
  }
  tree_sum(state.task.output, terms, static_cast<std::size_t>(queue.order.backend->getSize()));
  const std::scoped_lock lock(mutex_);
  queue.spare.push_back(std::move(terms));
}

}  // namespace syntony::overlap
