#include "torch/lanes/lanes.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "torch/lanes/tree_sum.hpp"

namespace syntony::overlap {

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// A thread's stream on the device that its lane's tensors are on, for as long as they are on that.
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

struct Lanes::State {
  Slot slot;
  Lane* lane = nullptr;
  Task task;
  std::uint64_t asked = 0;  // runs that were made ready, or will be by the op before
  std::uint64_t ended = 0;
  bool ready = false;             // and not launched
  std::optional<c10::Event> end;  // of the last run, on a device
  Record record;
};

struct Lanes::Lane {
  Order order;
  std::size_t cursor = 0;
  std::size_t bytes = 0;  // in flight
  std::deque<std::pair<int, WorkPtr>> flying;
  std::deque<at::Tensor> received;  // of exchange_sum: what came, in the order of launches
  std::vector<at::Tensor> spare;
  std::condition_variable turn;    // the next op is ready, or fits
  std::condition_variable flight;  // something was launched
  std::thread launching, completing;
};

Lanes::Lanes(std::vector<Slot> slots, std::vector<Order> orders) : states_(slots.size()) {
  for (std::size_t op = 0; op < slots.size(); ++op) states_[op].slot = std::move(slots[op]);
  for (Order& order : orders) {
    Lane& lane = *lanes_.emplace_back(std::make_unique<Lane>());
    lane.order = std::move(order);
    for (const int op : lane.order.ops) {
      State& state = states_.at(static_cast<std::size_t>(op));
      TORCH_CHECK(state.lane == nullptr, "op ", state.slot.name, " is in the order of two lanes");
      state.lane = &lane;
    }
  }
  for (const State& state : states_) TORCH_CHECK(state.lane != nullptr, "op ", state.slot.name, " is in no lane");
  for (const auto& lane : lanes_) {
    lane->launching = std::thread([this, &lane = *lane] { launch_in_order(lane); });
    lane->completing = std::thread([this, &lane = *lane] { complete_in_order(lane); });
    const std::string name = "lane " + lane->order.name.substr(0, 10);
    pthread_setname_np(lane->launching.native_handle(), name.c_str());
    pthread_setname_np(lane->completing.native_handle(), name.c_str());
  }
}

Lanes::~Lanes() { close(); }

void Lanes::close() {
  bool busy = false;
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    for (const auto& lane : lanes_) {
      busy = busy || !lane->flying.empty();
      lane->turn.notify_all();
      lane->flight.notify_all();
    }
  }
  for (const auto& lane : lanes_) {
    if (busy && lane->launching.joinable()) lane->order.backend->abort();
    if (lane->launching.joinable()) lane->launching.join();
    if (lane->completing.joinable()) lane->completing.join();
  }
}

void Lanes::ready(int op, Task task) {
  std::vector<Task> used;  // dropped last, without the mutex
  const c10::Device device = task.input.device();
  if (glue::has_streams(device)) task.ready = glue::event_on(glue::current_stream(device));
  const std::scoped_lock lock(mutex_);
  used.swap(used_);
  rethrow();
  State& state = states_.at(static_cast<std::size_t>(op));
  TORCH_CHECK(state.asked == state.ended, "op ", state.slot.name, " is made ready again before its last run has ended");
  TORCH_CHECK(device.is_cpu() || state.slot.move != Move::exchange_sum, "op ", state.slot.name, ": sums on ", device,
              " are made by Syntony's backend only");
  ++state.asked;
  for (int next = state.slot.next; next >= 0; next = states_[static_cast<std::size_t>(next)].slot.next) {
    ++states_[static_cast<std::size_t>(next)].asked;
  }
  make_ready(op, std::move(task));
}

void Lanes::make_ready(int op, Task task) {
  State& state = states_[static_cast<std::size_t>(op)];
  state.task = std::move(task);
  state.ready = true;
  state.record = {.op = op, .step = state.ended, .ready = now()};
  state.lane->turn.notify_one();
}

std::pair<bool, std::vector<int>> Lanes::wait(int op, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  const State& state = states_.at(static_cast<std::size_t>(op));
  at_rest_.wait_for(lock, patience, [&] { return failure_ || state.asked == state.ended || !announced_.empty(); });
  rethrow();
  const bool at_rest = state.asked == state.ended;
  if (at_rest) follow(state);
  return {at_rest, take_announced()};
}

std::vector<int> Lanes::ended() {
  const std::scoped_lock lock(mutex_);
  rethrow();
  return take_announced();
}

std::vector<int> Lanes::take_announced() {
  for (const int op : announced_) follow(states_[static_cast<std::size_t>(op)]);
  return std::exchange(announced_, {});
}

void Lanes::follow(const State& state) const {
  if (state.end) state.end->block(glue::current_stream(state.end->device()));
}

std::vector<Record> Lanes::take_records() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(records_, {});
}

std::pair<int, std::uint64_t> Lanes::failed() const {
  const std::scoped_lock lock(mutex_);
  if (failed_op_ < 0) return {-1, 0};
  return {failed_op_, states_[static_cast<std::size_t>(failed_op_)].ended};
}

void Lanes::rethrow() const {
  if (failure_) std::rethrow_exception(failure_);
}

void Lanes::fail(int op) {
  const std::scoped_lock lock(mutex_);
  if (!failure_) {
    failure_ = std::current_exception();
    failed_op_ = op;
  }
  at_rest_.notify_all();
  for (const auto& lane : lanes_) {
    lane->turn.notify_all();
    lane->flight.notify_all();
  }
}

// ---- the two threads of a lane --------------------------------------------------------------------------------------

void Lanes::launch_in_order(Lane& lane) {
  if (lane.order.ops.empty()) return;
  OwnStream own;
  std::unique_lock lock(mutex_);
  while (true) {
    const int op = lane.order.ops[lane.cursor];
    State& state = states_[static_cast<std::size_t>(op)];
    lane.turn.wait(lock, [&] {
      const bool fits = lane.order.window == 0 || lane.bytes == 0 || lane.bytes + state.slot.bytes <= lane.order.window;
      return stop_ || failure_ || (state.ready && fits);
    });
    if (stop_ || failure_) return;
    state.ready = false;
    state.record.begin = now();
    lane.bytes += state.slot.bytes;
    lock.unlock();
    try {
      if (const std::optional<c10::Event>& ready = state.task.ready) {
        own.enter(ready->device());
        ready->block(own.stream());
      }
      WorkPtr work = start(lane, op);
      lock.lock();
      lane.flying.emplace_back(op, std::move(work));
    } catch (...) {
      return fail(op);
    }
    lane.flight.notify_one();
    lane.cursor = (lane.cursor + 1) % lane.order.ops.size();
  }
}

void Lanes::complete_in_order(Lane& lane) {
  OwnStream own;
  std::unique_lock lock(mutex_);
  while (true) {
    lane.flight.wait(lock, [&] { return !lane.flying.empty() || stop_ || failure_; });
    if (lane.flying.empty()) return;
    const auto [op, work] = lane.flying.front();
    State& state = states_[static_cast<std::size_t>(op)];
    const bool on_device = state.task.ready.has_value();
    lock.unlock();
    try {
      if (on_device) own.enter(state.task.ready->device());
      if (work) work->wait();
      finish(lane, op);
    } catch (...) {
      return fail(op);
    }
    lock.lock();
    if (on_device) state.end = glue::event_on(own.stream());
    lane.flying.pop_front();
    lane.bytes -= state.slot.bytes;
    state.record.end = now();
    records_.push_back(state.record);
    ++state.ended;
    const Task& task = used_.emplace_back(std::exchange(state.task, {}));
    if (state.slot.next >= 0) {
      Task next{.input = task.output, .output = task.input};
      if (on_device) next.ready = glue::event_on(own.stream());
      make_ready(state.slot.next, std::move(next));
    }
    if (state.slot.announce) announced_.push_back(op);
    lane.turn.notify_one();
    at_rest_.notify_all();
  }
}

// ---- what an op does ------------------------------------------------------------------------------------------------

WorkPtr Lanes::start(Lane& lane, int op) {
  State& state = states_[static_cast<std::size_t>(op)];
  Task& task = state.task;
  c10d::Backend& backend = *lane.order.backend;
  std::vector<at::Tensor> one{task.input};
  switch (state.slot.move) {
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
      options.rootRank = state.slot.peer;
      return backend.broadcast(one, options);
    }
    case Move::send:
      return backend.send(one, state.slot.peer, state.slot.tag);
    case Move::recv:
      return backend.recv(one, state.slot.peer, state.slot.tag);
    case Move::exchange_sum:
      break;
  }
  at::Tensor room;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = std::ranges::find_if(lane.spare, [&](const at::Tensor& spare) {
      return spare.numel() >= task.input.numel() && spare.scalar_type() == task.input.scalar_type();
    });
    if (found != lane.spare.end()) {
      room = *found;
      lane.spare.erase(found);
    }
  }
  if (!room.defined()) room = at::empty({task.input.numel()}, task.input.options());
  at::Tensor exchanged = room.narrow(0, 0, task.input.numel());
  WorkPtr work = backend.alltoall_base(exchanged, task.input, task.output_rows, task.input_rows);
  const std::scoped_lock lock(mutex_);
  lane.received.push_back(std::move(room));
  return work;
}

void Lanes::finish(Lane& lane, int op) {
  State& state = states_[static_cast<std::size_t>(op)];
  if (state.slot.move != Move::exchange_sum) return;
  at::Tensor room;
  {
    const std::scoped_lock lock(mutex_);
    room = std::move(lane.received.front());
    lane.received.pop_front();
  }
  tree_sum(state.task.output, room, static_cast<std::size_t>(lane.order.backend->getSize()));
  const std::scoped_lock lock(mutex_);
  lane.spare.push_back(std::move(room));
}

}  // namespace syntony::overlap
