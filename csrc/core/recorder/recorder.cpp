#include "core/recorder/recorder.hpp"

#include <algorithm>
#include <utility>

#include "core/atomic.hpp"
#include "core/process/host.hpp"
#include "core/process/log.hpp"

namespace syntony {
namespace {

constexpr std::size_t kDefaultEntries = 2000;
constexpr std::size_t kMostEntries = 1'000'000;

std::int64_t nanoseconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

/// For a counter with one writer.
template <typename Number>
void add(std::atomic<Number>& counter, Number amount) {
  counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

}  // namespace

class alignas(64) Recorder::Slot {
 public:
  [[nodiscard]] bool free() const {
    return version_.load(std::memory_order_relaxed) == 0 || state_.load(std::memory_order_acquire) >= State::completed;
  }

  void fill(const Facts& facts) {
    const std::uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    fence(std::memory_order_release);
    facts_.assign(facts);
    state_.store(State::queued, std::memory_order_relaxed);
    unequal_.store(false, std::memory_order_relaxed);
    started_.store(0, std::memory_order_relaxed);
    finished_.store(0, std::memory_order_relaxed);
    version_.store(version + 2, std::memory_order_release);
  }

  /// False if the slot was never used or is being filled.
  bool read(Record& record) const {
    const std::uint64_t version = version_.load(std::memory_order_acquire);
    if (version == 0 || version % 2 == 1) return false;
    static_cast<Facts&>(record) = facts();
    record.state = state_.load(std::memory_order_acquire);  // before the times, which are written before it
    record.by_caller = by_caller_.load(std::memory_order_relaxed);
    record.unequal = unequal_.load(std::memory_order_relaxed);
    record.started = started_.load(std::memory_order_relaxed);
    record.finished = record.state >= State::completed ? finished_.load(std::memory_order_relaxed) : 0;
    fence(std::memory_order_acquire);
    return version_.load(std::memory_order_relaxed) == version;
  }

  [[nodiscard]] Facts facts() const { return facts_.as<Facts>(); }

 private:
  friend class Ticket;
  Atomic<std::uint64_t> version_{0};  // odd while `facts_` change, 0: never used
  RacingBytes<sizeof(Facts)> facts_;
  Atomic<std::int64_t> started_{0};
  Atomic<std::int64_t> finished_{0};
  Atomic<State> state_{State::queued};
  Atomic<bool> by_caller_{false};
  Atomic<bool> unequal_{false};
};

Recorder::Recorder(Identity identity, std::size_t entries)
    : identity_(std::move(identity)), entries_(entries), sent_(identity_.members.size()), names_{""} {}

Recorder::~Recorder() = default;

Recorder::Slot& Recorder::slot(std::uint64_t number) {
  const std::uint64_t place = number % entries_;
  if (place / kPage == pages_.size()) {
    auto page = std::make_unique<Slot[]>(kPage);
    const std::lock_guard lock(mutex_);
    pages_.push_back(std::move(page));
  }
  return pages_[place / kPage][place % kPage];
}

std::size_t Recorder::entries_wanted() {
  const std::uint64_t entries = environment_number("SYNTONY_TRACE_ENTRIES", kDefaultEntries);
  if (entries > kMostEntries) {
    throw Error(Error::Kind::invalid, "SYNTONY_TRACE_ENTRIES=" + std::to_string(entries) + " must be from 0 to " +
                                          std::to_string(kMostEntries));
  }
  return entries;
}

Recorder::Facts Recorder::Facts::of(const Call& call, const Descriptor& descriptor, const Lifetime& lifetime) {
  Facts facts;
  facts.sequence = descriptor.ordinal != 0 ? descriptor.ordinal : descriptor.sequence;
  facts.priority = descriptor.ordinal != 0 ? kNoPriority : static_cast<std::uint8_t>(descriptor.priority);
  facts.elements = descriptor.elements;
  for (const Block& block : call.blocks) {
    if (block.input != nullptr) facts.input_elements += block.elements;
    if (block.output != nullptr) facts.output_elements += block.elements;
  }
  facts.peer = static_cast<std::int32_t>(call.root);
  facts.kind = descriptor.barrier != 0 ? kBarrier : static_cast<std::uint8_t>(call.collective);
  facts.dtype = call.dtype;
  facts.op = call.op;
  facts.live(lifetime);
  return facts;
}

void Recorder::Facts::live(const Lifetime& lifetime) {
  created = nanoseconds(lifetime.created.time_since_epoch());
  timeout = nanoseconds(lifetime.deadline - lifetime.created);
}

Recorder::Ticket Recorder::open(Facts facts, std::string_view program) {
  if (facts.sequence > 0 && facts.priority == kNoPriority) launched_.store(facts.sequence, std::memory_order_relaxed);
  if (entries_ == 0) return {};
  if (names_[last_name_] != program) {  // only callers change the names, so they may read them without the lock
    const auto known = std::ranges::find(names_, program);
    last_name_ = static_cast<std::uint32_t>(known - names_.begin());
    if (known == names_.end()) {
      const std::lock_guard lock(mutex_);
      names_.emplace_back(program);
    }
  }
  facts.program = last_name_;
  facts.number = next_++;
  Slot& slot = this->slot(facts.number);
  if (!slot.free()) {
    add<std::uint64_t>(unrecorded_, 1);
    return {};
  }
  slot.fill(facts);
  return {this, &slot};
}

void Recorder::Ticket::admitted() const {
  if (slot_ != nullptr) slot_->state_.store(State::admitted, std::memory_order_relaxed);
}

void Recorder::Ticket::shared_unequally() const {
  if (slot_ != nullptr) slot_->unequal_.store(true, std::memory_order_relaxed);
}

void Recorder::Ticket::started() const {
  if (slot_ != nullptr && slot_->started_.load(std::memory_order_relaxed) == 0)
    started(std::chrono::steady_clock::now());
}

void Recorder::Ticket::started(std::chrono::steady_clock::time_point at) const {
  if (slot_ == nullptr) return;
  // Release: a reader that combines it with the facts of another operation must see that the facts have changed
  // meanwhile.
  slot_->started_.store(nanoseconds(at.time_since_epoch()), std::memory_order_release);
  slot_->state_.store(State::started, std::memory_order_release);
}

void Recorder::Ticket::finished(bool failed, bool by_caller) const {
  if (slot_ == nullptr) return;
  const std::int64_t now = nanoseconds_now();
  const Facts facts = slot_->facts();
  const std::int64_t started = slot_->started_.load(std::memory_order_relaxed);
  SharedCounter& counter = recorder_->counters_[facts.kind];
  add<std::uint64_t>(counter.operations, 1);
  if (failed) add<std::uint64_t>(counter.failures, 1);
  const std::uint64_t bytes = std::max(facts.input_elements, facts.output_elements) * size_of(facts.dtype);
  if (!failed) add<std::uint64_t>(counter.bytes, bytes);
  add<std::int64_t>(counter.queued, (started == 0 ? now : started) - facts.created);
  if (started != 0) add<std::int64_t>(counter.running, now - started);
  slot_->finished_.store(now, std::memory_order_release);
  slot_->by_caller_.store(by_caller, std::memory_order_relaxed);
  slot_->state_.store(failed ? State::failed : State::completed, std::memory_order_release);
  log(LogLevel::trace, [&] {
    return std::string(name_of_kind(facts.kind)) + (facts.sequence > 0 ? " #" + std::to_string(facts.sequence) : "") +
           " of group " + recorder_->identity_.group + (failed ? " failed, " : " done, ") + std::to_string(bytes) +
           " bytes, " + std::to_string((now - facts.created) / 1000) + " us";
  });
}

std::vector<Recorder::Record> Recorder::records() const {
  std::vector<std::string> names;
  std::vector<Record> records;
  std::vector<const Slot*> pages;
  {
    const std::lock_guard lock(mutex_);
    for (const std::unique_ptr<Slot[]>& page : pages_) pages.push_back(page.get());
  }
  for (std::size_t i = 0; i < std::min(entries_, pages.size() * kPage); ++i) {
    Record record;
    constexpr int kAttempts = 3;  // a slot that changes this often holds nothing lasting
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      if (!pages[i / kPage][i % kPage].read(record)) continue;
      records.push_back(std::move(record));
      break;
    }
  }
  {
    const std::lock_guard lock(mutex_);  // after the slots, so that every name they refer to is present
    names = names_;
  }
  for (Record& record : records)
    record.program_name = record.unequal ? "two_shot (unequal shares)" : names[record.program];
  std::ranges::sort(records, {}, &Record::number);
  return records;
}

std::array<Recorder::Counter, Recorder::kKinds> Recorder::counters() const {
  std::array<Counter, kKinds> counters;
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    const SharedCounter& shared = counters_[kind];
    counters[kind] = {shared.operations.load(std::memory_order_relaxed),
                      shared.failures.load(std::memory_order_relaxed), shared.bytes.load(std::memory_order_relaxed),
                      shared.queued.load(std::memory_order_relaxed), shared.running.load(std::memory_order_relaxed)};
  }
  return counters;
}

std::string Recorder::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Recorder::set_failure(const std::string& sentence) {
  const std::lock_guard lock(mutex_);
  failure_ = sentence;
}

std::string_view name_of_kind(std::uint8_t kind) {
  switch (kind) {
    case Recorder::kBarrier:
      return "barrier";
    case Recorder::kSend:
      return "send";
    case Recorder::kReceive:
      return "receive";
    default:
      return name_of(static_cast<Collective>(kind));
  }
}

std::string_view name_of(Recorder::State state) {
  constexpr std::array<std::string_view, 5> kNames{"queued", "admitted", "started", "completed", "failed"};
  return kNames[static_cast<std::size_t>(state)];
}

}  // namespace syntony
