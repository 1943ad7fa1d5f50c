#include "core/group/group.hpp"

#include <cstring>
#include <numeric>
#include <utility>

#include "core/group/operation.hpp"
#include "core/recorder/recorder_dump.hpp"
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
  recorder_->set_clock_offset(fabric_->clock_offset());
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

}  // namespace syntony
