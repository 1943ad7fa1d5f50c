// What the owner of progress does for a Group: it takes what callers have submitted, admits operations, and steps them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/group/group.hpp"
#include "core/group/operation.hpp"
#include "core/kernels/kernels.hpp"

namespace syntony {

using Clock = Work::Clock;

void Group::take_submissions() {
  if (!has_submissions_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  collect();
}

// Requires the mutex.
void Group::collect() {
  has_submissions_.store(false, std::memory_order_relaxed);
  for (std::unique_ptr<Operation>& operation : submitted_) {
    const Priority priority = operation->descriptor.priority;
    levels_[index_of(priority)].queue.push_back(std::move(operation));
    set_active(priority, true);
  }
  for (OutgoingMessage& message : submitted_sends_) messages_.send(std::move(message));
  for (PostedReceive& receive : submitted_receives_) messages_.receive(std::move(receive));
  messages_in_flight_ += submitted_sends_.size() + submitted_receives_.size();
  submitted_.clear();
  submitted_sends_.clear();
  submitted_receives_.clear();
}

std::uint32_t Group::slice_bytes(const Operation& operation) const {
  constexpr std::uint32_t kShortest = 4096, kUnit = 64;
  const StreamShape& shape = fabric_->shape();
  const PreparedProgram& program = *operation.selection.program;
  const Call& call = operation.call;
  if (operation.descriptor.priority != Priority::low) {
    const std::uint32_t longest = fabric_->longest_slice();
    if (!call.even || longest == shape.slot_bytes) return shape.slot_bytes;
    return program.slice_bytes(call.longest(), call.element_bytes(), shape.slot_bytes, longest, fabric_->sockets());
  }
  const std::uint32_t frames = shape.depth * windows_ * program.most_connections();
  return std::clamp(shape.credit / frames / kUnit * kUnit, kShortest, shape.slot_bytes);
}

// An operation whose caller owns progress: if everything before it is done, it need not be queued.
std::shared_ptr<Work> Group::enter(StagedCall& call) {
  std::unique_lock lock(mutex_);
  if (in_flight_.load(std::memory_order_acquire) > 0) {
    lock.unlock();
    return launch(std::move(call));
  }
  std::unique_ptr<Operation> operation = open(std::move(call), std::move(spare_));
  const Clock::time_point created = operation->lifetime.created;
  const bool shared = operation->selection.shared();
  in_flight_.fetch_add(1, std::memory_order_acq_rel);
  lock.unlock();
  std::shared_ptr<Work> work = operation->work;
  const Priority priority = operation->descriptor.priority;
  watched([&] {
    admit(levels_[index_of(priority)], std::move(operation));
    if (shared) work->record().started(created);  // it moves with the next pass: no need to read the clock
    return false;
  });
  set_active(priority, true);
  if (!shared && priority != Priority::low) step(priority, Share::all);  // what can be sent need not wait for a pass
  return work;
}

void Group::admit(Level& level) {
  while (!level.queue.empty() && level.queue.front()->descriptor.sequence < level.completed + 1 + windows_) {
    std::unique_ptr<Operation> next = std::move(level.queue.front());
    level.queue.pop_front();
    admit(level, std::move(next));
  }
}

// It is added to the running operations before anything can fail, so that its caller learns of a failure too.
void Group::admit(Level& level, std::unique_ptr<Operation> next) {
  Operation& operation = *level.running.emplace_back(std::move(next));
  const Descriptor& descriptor = operation.descriptor;
  if (operation.reconsidered) reconsider(operation);
  ++admitted_;
  operation.done = false;
  operation.share = Share::all;
  operation.execution.reset();
  operation.shared.reset();
  operation.aggregated.reset();
  if (operation.selection.in_network()) {
    operation.aggregated = aggregation(level.priority).start(operation.call, operation.lifetime);
  } else if (operation.selection.shared()) {
    operation.shared.emplace(*fabric_->shared_rounds(level.priority), descriptor, operation.call);
  } else {
    prepare(operation);
  }
  level.history[descriptor.sequence % Level::kRemembered] = descriptor;
  operation.work->record().admitted();
  for (const std::unique_ptr<ControlPlane>& plane : fabric_->planes()) plane->announce(descriptor);
  if (operation.shared) operation.shared->show();
}

void Group::reconsider(Operation& operation) {
  std::optional<Selector::Selection> other = operation.reconsidered(operation.descriptor.sequence);
  if (!other) return;
  operation.selection = *std::move(other);
  operation.descriptor.program = operation.selection.fingerprint();
  operation.descriptor.fingerprint = fingerprint_of(operation.descriptor);
  operation.work->record().shared_unequally();
}

AggregationThread& Group::aggregation(Priority priority) {
  std::unique_ptr<AggregationThread>& thread = aggregation_[index_of(priority)];
  if (!thread) {
    const Token token =
        sip_hash(sip_key_of(fabric_->secret()), "syntony aggregation " + std::to_string(index_of(priority)));
    thread = std::make_unique<AggregationThread>(ways_, token, fabric_->rank(), [this] { engine_->unattended(); });
  }
  return *thread;
}

void Group::prepare(Operation& operation) {
  const Descriptor& descriptor = operation.descriptor;
  const PreparedProgram& program = *operation.selection.program;
  const std::size_t priority = index_of(descriptor.priority);
  const auto window = static_cast<std::uint32_t>(priority * windows_ + descriptor.sequence % windows_);
  const std::size_t need = Execution::scratch_bytes(program, fabric_->rank(), operation.call);
  if (need > scratch_bytes_[window]) {
    scratch_[window] = std::make_unique_for_overwrite<std::byte[]>(need);
    scratch_bytes_[window] = need;
  }
  Wire wire{fabric_->transports(), window, slice_bytes(operation), fabric_->header(), recorder_->sent()};
  wire.header.sequence = descriptor.sequence;
  wire.header.fingerprint = descriptor.fingerprint;
  wire.header.priority = static_cast<std::uint16_t>(priority);
  operation.execution.emplace(program, fabric_->rank(), operation.call, std::span(scratch_[window].get(), need), wire);
}

bool Group::begin() {
  if (!busy()) return false;  // data for operations that are not launched yet waits in the kernel
  take_submissions();
  if (PostRound* round = round_.load(std::memory_order_acquire)) advance(*round);
  if (abort_requested_.load(std::memory_order_acquire)) {
    fail(abort_reason_.kind, abort_reason_.sentence, abort_reason_.ranks);
  }
  const bool moved = watched([this] {
    bool any = false;
    for (const std::unique_ptr<Transport>& transport : fabric_->owned_transports()) any |= transport->progress();
    if (messages_in_flight_ >
        0) {  // before the priorities, but they do not yield to it: a receive may be posted for long
      any |= messages_.step();
      if (!messages_.busy()) in_flight_.fetch_sub(std::exchange(messages_in_flight_, 0), std::memory_order_acq_rel);
      for (const std::unique_ptr<Transport>& transport : fabric_->owned_transports()) transport->wake();
    }
    return any;
  });
  look_for_unsent();
  return moved;
}

bool Group::step(Priority priority, Share share) {
  Level& level = levels_[index_of(priority)];
  const bool moved = watched([&] {
    admit(level);
    const bool any = advance(level, share);
    for (const std::unique_ptr<Transport>& transport : fabric_->owned_transports()) transport->wake();
    return any;
  });
  set_active(priority, !level.queue.empty() || !level.running.empty());
  look_for_unsent();
  return moved;
}

/// Peers may wait for data of operations that are done here.
void Group::look_for_unsent() {
  const bool unsent = !failed_ && in_flight_.load(std::memory_order_acquire) == 0 &&
                      std::ranges::any_of(fabric_->owned_transports(), [](const std::unique_ptr<Transport>& transport) {
                        return transport->unsent();
                      });
  unsent_.store(unsent, std::memory_order_relaxed);
}

bool Group::pass() {
  bool moved = begin();
  for (const Priority priority : kMostUrgentFirst) {
    if (active(priority)) moved |= step(priority, Share::all);
  }
  return moved;
}

/// No exception may escape into the thread that serves all groups.
template <typename Moving>
bool Group::watched(const Moving& move) {
  if (failed_) return false;
  try {
    const bool moved = move();
    moves_ += moved ? 1 : 0;
    return moved;
  } catch (const UnexpectedFrame& frame) {
    explain(frame);
  } catch (const SharedMismatch& mismatch) {
    explain(mismatch);
  } catch (const Error& error) {
    explain(error);
  } catch (const std::bad_alloc&) {
    fail(Error::Kind::system, "rank " + std::to_string(fabric_->rank()) + " is out of memory",
         {static_cast<int>(fabric_->rank())});
  } catch (const std::exception& error) {
    fail(Error::Kind::system, error.what(), {static_cast<int>(fabric_->rank())});
  }
  return false;
}

void Group::advance(PostRound& round) {
  std::exception_ptr error;
  try {
    if (failed_ && !round.tolerant) std::rethrow_exception(this->error());
    if (round.given_up) {
      round.give_up(*fabric_);
    } else if (!round.complete(*fabric_, Clock::now())) {
      return;
    }
  } catch (...) {
    error = std::current_exception();
  }
  round_.store(nullptr, std::memory_order_release);
  in_flight_.fetch_sub(1, std::memory_order_acq_rel);
  const std::shared_ptr<Work> work = round.work;  // its caller frees `round` as soon as it is done
  work->finish(error);
}

bool Group::advance(Level& level, Share share) {
  bool moved = false;
  for (const std::unique_ptr<Operation>& operation : level.running) moved |= advance(*operation, share);
  while (!level.running.empty() && level.running.front()->done) {
    spare_ = std::move(level.running.front());
    level.running.erase(level.running.begin());
  }
  return moved;
}

bool Group::advance(Operation& operation, Share share) {
  if (operation.done) return false;
  if (operation.aggregated) {
    if (!operation.aggregated->done.load(std::memory_order_acquire)) return false;
    if (operation.aggregated->error) std::rethrow_exception(operation.aggregated->error);
    operation.work->record().started();
    finish(operation);
    return true;
  }
  Pace pace = operation.pace(share);
  // What SYNTONY_CREDIT allows was dealt to so many frames (slice_bytes).
  if (operation.descriptor.priority == Priority::low) pace.frames = std::min(pace.frames, fabric_->shape().depth);
  const bool moved = operation.shared ? pace.frames > 0 && operation.shared->step() : operation.execution->step(pace);
  if (moved) {
    operation.share = Share::all;  // restarts its clock for standing still
    operation.work->record().started();
  }
  if (operation.shared ? operation.shared->done() : operation.execution->done()) finish(operation);
  return moved || operation.done;
}

void Group::finish(Operation& operation) {
  operation.done = true;
  complete(levels_[index_of(operation.descriptor.priority)]);
  const Call& call = operation.call;
  if (call.scaling.average) {
    for (const Block& block : call.blocks) {
      if (block.output != nullptr) {
        divide(call.dtype, block.output, block.elements, static_cast<std::int64_t>(fabric_->size()));
      }
    }
  }
  unpack(operation);
  in_flight_.fetch_sub(1, std::memory_order_acq_rel);
  operation.work->finish(nullptr);
  operation.call.options.keep_alive.reset();
  operation.storage = {};
}

void Group::unpack(const Operation& operation) {
  std::size_t unpacked = 0;
  for (const Block& block : operation.unpacked) {
    const std::size_t bytes = block.elements * operation.call.element_bytes();
    if (bytes > 0) std::memcpy(block.output, operation.call.blocks.front().output + unpacked, bytes);
    unpacked += bytes;
  }
}

// Before the Work is done: its owner may then end the process immediately, which must not look like a death in
// mid-operation.
void Group::complete(Level& level) {
  const std::uint64_t before = level.completed;
  for (const std::unique_ptr<Operation>& operation : level.running) {
    if (!operation->done) break;
    level.completed = std::max(level.completed, operation->descriptor.sequence);
  }
  if (level.completed == before) return;
  for (const std::unique_ptr<ControlPlane>& plane : fabric_->planes()) plane->complete(level.priority, level.completed);
}

void Group::sleeping(bool asleep) {
  for (const std::unique_ptr<Transport>& transport : fabric_->owned_transports()) transport->sleeping(asleep);
}

bool Group::meets_on(std::uint32_t cpu) {
  bool meets = false;
  for (const std::unique_ptr<Transport>& transport : fabric_->owned_transports()) meets |= transport->meets_on(cpu);
  return meets;
}

std::optional<std::uint32_t> Group::emptier(std::uint32_t cpu, std::span<const std::uint32_t> allowed) const {
  for (const std::unique_ptr<Transport>& transport : fabric_->owned_transports()) {
    if (const auto found = transport->emptier(cpu, allowed)) return found;
  }
  return std::nullopt;
}

}  // namespace syntony
