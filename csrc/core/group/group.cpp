#include "core/group/group.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "core/group/operation.hpp"
#include "core/kernels/kernels.hpp"
#include "core/recorder/recorder_dump.hpp"
#include "core/selection/selector.hpp"
#include "core/sizes.hpp"

namespace syntony {
namespace {

using Clock = Work::Clock;
constexpr std::size_t kFewBytes = 64_KiB;  // that a caller moves even if it does not want to wait
constexpr std::chrono::milliseconds kLongestDrain{5000};
constexpr std::chrono::milliseconds kLongestFinish{1000};
constexpr std::chrono::microseconds kBreathInMemory{200};   // a few rounds
constexpr std::chrono::microseconds kBreathOnWires{10000};  // a slot's bytes at 100 Mbit/s

void remember(std::deque<std::shared_ptr<Work>>& unfinished, const std::shared_ptr<Work>& work) {
  while (!unfinished.empty() && unfinished.front()->done()) unfinished.pop_front();
  unfinished.push_back(work);
}

}  // namespace

Group::Group(std::shared_ptr<ProgressEngine> engine, std::unique_ptr<Fabric> fabric, std::string name,
             std::vector<std::uint32_t> members)
    : engine_(std::move(engine)),
      fabric_(std::move(fabric)),
      name_(std::move(name)),
      windows_(static_cast<std::uint32_t>((fabric_->shape().windows - 1) / kPriorities)),
      breath_(fabric_->hosts() == 1 ? kBreathInMemory : kBreathOnWires),
      recorder_(std::make_shared<Recorder>(Recorder::Identity{name_, fabric_->rank(), std::move(members)},
                                           Recorder::entries_wanted())),
      messages_(fabric_->rank(), fabric_->transports(), fabric_->shape().windows - 1, fabric_->shape().slot_bytes,
                fabric_->header(), recorder_->sent()),
      scratch_(std::size_t{windows_} * kPriorities),
      scratch_bytes_(scratch_.size(), 0) {
  for (const Priority priority : kMostUrgentFirst) levels_[index_of(priority)].priority = priority;
  std::vector<std::shared_ptr<Wires>> wires;
  for (const std::unique_ptr<Transport>& transport : fabric_->owned_transports()) {
    if (std::shared_ptr<Wires> counted = transport->wires()) wires.push_back(std::move(counted));
  }
  recorder_->set_wires(std::move(wires));
  enlist(recorder_);
  engine_->add(*this, fabric_->data_descriptors(), fabric_->control_descriptors());
}

Group::~Group() { shutdown(); }

std::uint64_t Group::sequence() const {
  const std::lock_guard lock(mutex_);
  return std::accumulate(levels_.begin(), levels_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Level& level) { return sum + level.launched; });
}

std::exception_ptr Group::error() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// ---- Callers' side ------------------------------------------------------------------------------------------------

template <typename Queue, typename Item>
std::shared_ptr<Work> Group::enqueue(Queue& queue, Item item, Recorder::Facts facts) {
  facts.elements = item.bytes;
  facts.tag = item.tag;
  facts.live(item.lifetime);
  const std::lock_guard lock(mutex_);
  refuse_after_end();
  item.work = std::make_shared<Work>(*engine_, Descriptor{}, recorder_->open(facts, ""));
  if constexpr (std::is_same_v<Item, OutgoingMessage>) remember(unfinished_, item.work);
  queue.push_back(item);
  in_flight_.fetch_add(1, std::memory_order_acq_rel);
  has_submissions_.store(true, std::memory_order_release);
  return item.work;
}

// Requires the mutex. `used`: a finished operation that may be reused for this one, or null.
std::unique_ptr<Group::Operation> Group::open(StagedCall&& call, std::unique_ptr<Operation> used) {
  refuse_after_end();
  std::unique_ptr<Operation> operation = used ? std::move(used) : std::make_unique<Operation>();
  static_cast<StagedCall&>(*operation) = std::move(call);
  const std::string_view algorithm = operation->selection.name();
  const std::optional<Priority> priority = operation->call.options.priority;
  // Allocate first: if memory runs out here, nothing has been started.
  if (operation->work.use_count() != 1) operation->work = std::make_shared<Work>(*engine_, Descriptor{});
  Descriptor& descriptor = operation->descriptor;
  descriptor.priority = priority.value_or(usual_priority(descriptor.collective));
  descriptor.sequence = ++levels_[index_of(descriptor.priority)].launched;
  if (!priority) descriptor.ordinal = ++ordinal_;
  descriptor.fingerprint = fingerprint_of(descriptor);
  const Recorder::Ticket record =
      recorder_->open(Recorder::Facts::of(operation->call, descriptor, operation->lifetime), algorithm);
  operation->work->reopen(descriptor, record);
  return operation;
}

// Requires the mutex.
std::shared_ptr<Work> Group::submit(StagedCall&& call) {
  std::unique_ptr<Operation> operation = open(std::move(call), nullptr);
  std::shared_ptr<Work> work = operation->work;
  submitted_.push_back(std::move(operation));
  remember(unfinished_, work);
  in_flight_.fetch_add(1, std::memory_order_acq_rel);
  has_submissions_.store(true, std::memory_order_release);
  return work;
}

std::shared_ptr<Work> Group::launch(StagedCall&& call) {
  const std::lock_guard lock(mutex_);
  return submit(std::move(call));
}

std::shared_ptr<Work> Group::launch(std::vector<StagedCall> parts) {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Work>> works;
  for (StagedCall& part : parts) works.push_back(submit(std::move(part)));
  auto whole = std::make_shared<Work>(*engine_, works.back()->descriptor());
  whole->gather(works, whole);
  return whole;
}

std::shared_ptr<Work> Group::start(StagedCall&& call) {
  const bool few = call.descriptor.elements * call.call.element_bytes() <= kFewBytes;
  if (few && engine_->try_acquire()) {
    std::shared_ptr<Work> work = enter_acquired(call);
    engine_->pass_and_release();  // peers have our part, however late the caller waits
    return work;
  }
  std::shared_ptr<Work> work = launch(std::move(call));
  engine_->submitted();
  return work;
}

void Group::run(StagedCall&& call) {
  std::shared_ptr<Work> work;
  if (engine_->try_acquire()) {
    work = enter_acquired(call);
    engine_->drive_acquired(*work);
  } else {
    work = launch(std::move(call));
  }
  wait(*work);
}

std::shared_ptr<Work> Group::run_alone(StagedCall&& call) {
  std::unique_lock lock(mutex_);
  std::unique_ptr<Operation> operation = open(std::move(call), std::move(spare_));
  lock.unlock();
  std::shared_ptr<Work> work = operation->work;
  for (const Block& block : operation->call.blocks) {
    const std::size_t bytes = block.elements * operation->call.element_bytes();
    const bool here = block.input != nullptr && block.output != nullptr && block.input != block.output;
    if (here && bytes > 0) std::memcpy(block.output, block.input, bytes);
  }
  unpack(*operation);
  work->finish(nullptr);
  operation->call.options.keep_alive.reset();
  operation->storage = {};
  lock.lock();
  spare_ = std::move(operation);
  return work;
}

std::shared_ptr<Work> Group::enter_acquired(StagedCall& call) {
  try {
    return enter(call);
  } catch (...) {
    engine_->release();
    throw;
  }
}

void Group::wait(Work& work) {
  try {
    work.wait();
  } catch (...) {
    if (!work.done()) {
      abort("a signal interrupted " + describe(work.descriptor()));
      engine_->drive(work, std::nullopt, false);
    }
    throw;
  }
}

std::shared_ptr<Work> Group::send(OutgoingMessage message) {
  Recorder::Facts facts{.input_elements = message.bytes, .peer = static_cast<std::int32_t>(message.destination)};
  facts.kind = Recorder::kSend;
  return enqueue(submitted_sends_, std::move(message), facts);
}

std::shared_ptr<Work> Group::receive(PostedReceive receive) {
  Recorder::Facts facts{.output_elements = receive.bytes, .peer = receive.source};
  facts.kind = Recorder::kReceive;
  return enqueue(submitted_receives_, std::move(receive), facts);
}

// The planes belong to the owner of progress, so it tells the peers. We wait until it has, because our caller may be
// about to end the process.
void Group::abort(const std::string& why) {
  auto told = std::make_shared<Work>(*engine_, Descriptor{});
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    const std::string self = "rank " + std::to_string(fabric_->rank());
    abort_reason_ = {
        Error::Kind::aborted, {static_cast<int>(fabric_->rank())}, self + " aborted group " + name_ + ": " + why};
    failure_ = std::make_exception_ptr(Error(abort_reason_.kind, abort_reason_.sentence, abort_reason_.ranks));
    aborting_ = told;
    in_flight_.fetch_add(1, std::memory_order_acq_rel);  // busy until the owner has ended the operations in flight
    abort_requested_.store(true, std::memory_order_release);
  }
  told->wait_to_the_end();
}

void Group::exchange(PostRound& round) {
  round.work = std::make_shared<Work>(*engine_, Descriptor{});
  {
    const std::lock_guard lock(mutex_);
    if (closed_) std::rethrow_exception(failure_ ? failure_ : shut_down());
    in_flight_.fetch_add(1, std::memory_order_acq_rel);
    round_.store(&round, std::memory_order_release);
  }
  try {
    round.work->wait();
  } catch (...) {
    round.given_up = true;  // a signal: the owner of progress tells the others and ignores the round from now on
    engine_->drive(*round.work, std::nullopt, false);
    throw;
  }
}

// Requires the mutex.
void Group::refuse_after_end() const {
  if (failure_) std::rethrow_exception(failure_);
  if (closed_) std::rethrow_exception(shut_down());
}

std::exception_ptr Group::shut_down() const {
  const std::string self = "rank " + std::to_string(fabric_->rank());
  return std::make_exception_ptr(Error(Error::Kind::aborted,
                                       "[" + self + "] " + self + " has shut group " + name_ + " down",
                                       {static_cast<int>(fabric_->rank())}));
}

void Group::shutdown() {
  std::deque<std::shared_ptr<Work>> unfinished;
  {
    const std::lock_guard lock(mutex_);  // new operations are refused from here on; started ones are waited for
    if (closed_.exchange(true)) return;
    unfinished.swap(unfinished_);
  }
  const Clock::time_point patience = Clock::now() + kLongestFinish;
  for (const std::shared_ptr<Work>& work : unfinished) engine_->drive(*work, patience, false);
  engine_->remove(*this, fabric_->data_descriptors(), fabric_->control_descriptors());
  // Frames of finished operations may still be on their way out (TCP); the peers must get them.
  for (const std::unique_ptr<Transport>& transport : fabric_->owned_transports()) {
    if (!failed_) transport->drain(kLongestDrain);
  }
  for (const std::unique_ptr<ControlPlane>& plane : fabric_->planes()) plane->leave();
  if (!failed_) dump_at_end();
  end({Error::Kind::aborted,
       {static_cast<int>(fabric_->rank())},
       "rank " + std::to_string(fabric_->rank()) + " has shut group " + name_ + " down"});
  if (record_left_.valid()) record_left_.wait_for(kLongestFinish);  // our caller may be about to end the process
}

// ---- The owner of progress ----------------------------------------------------------------------------------------

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

std::uint32_t Group::slice_bytes(Priority priority, const PreparedProgram& program) const {
  constexpr std::uint32_t kShortest = 4096, kUnit = 64;
  const StreamShape& shape = fabric_->shape();
  if (priority != Priority::low) return shape.slot_bytes;
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
  Wire wire{fabric_->transports(), window, slice_bytes(descriptor.priority, program), fabric_->header(),
            recorder_->sent()};
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
    level.running.pop_front();
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
  const Pace pace = operation.pace(share);
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
