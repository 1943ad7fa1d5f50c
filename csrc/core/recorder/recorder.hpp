// The flight recorder of a group: what its last operations were and how far each of them came, to find out why a job
// hangs.
//
//     launch (callers, one at a time)        owner of progress                 anybody, at any time
//     open() ──► slot: facts, queued ──────► admitted, started, finished ····► record(): a copy, no lock shared
//                └ ring: the slot of an operation that is not finished is never given to another one
//
// So each slot has one writer at a time. Readers accept only consistent data: the facts carry a version that is odd
// while they change (a sequence lock), the rest are single words. If all slots are held by unfinished operations, a new
// one is not recorded (`unrecorded`): the oldest operations tell the most about a hang.
//
// The counters of the group (recorder_text.hpp) are kept here too, because the same few stores serve them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/call.hpp"
#include "core/control.hpp"
#include "core/transport.hpp"

namespace syntony {

/// CLOCK_MONOTONIC in nanoseconds: one clock for all ranks of a host.
[[nodiscard]] inline std::int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Recorder : public std::enable_shared_from_this<Recorder> {
 public:
  /// Operations whose callers chose no priority: they share one order (Descriptor::ordinal). The kinds of operations
  /// are the collectives, in the order of `Collective`, and those below.
  static constexpr std::uint8_t kNoPriority = kPriorities;
  static constexpr std::uint8_t kBarrier = 8, kSend = 9, kReceive = 10, kKinds = 11;
  enum class State : std::uint8_t { queued, admitted, started, completed, failed };

  /// What is known when an operation is launched. Trivially copyable: it is copied word by word.
  struct Facts {
    std::uint64_t number = 0;           // number of the record in this group, from 0
    std::uint64_t sequence = 0;         // of a collective within its priority; 0 for a message
    std::uint64_t elements = 0;         // equal on all ranks (Descriptor); bytes of a message
    std::uint64_t input_elements = 0;   // on this rank
    std::uint64_t output_elements = 0;  // on this rank
    std::uint64_t tag = 0;              // of a message
    std::int64_t created = 0;           // nanoseconds_now()
    std::int64_t timeout = 0;           // nanoseconds
    std::uint32_t program = 0;          // index of its name
    std::int32_t peer = 0;              // the root; for a message the other end, -1 for any
    std::uint8_t kind = 0;
    DType dtype = DType::uint8;
    ReduceOp op = ReduceOp::sum;
    std::uint8_t priority = kNoPriority;  // the one that the caller chose
    std::array<std::uint8_t, 4> unused{};

    /// The facts of a collective.
    [[nodiscard]] static Facts of(const Call& call, const Descriptor& descriptor, const Lifetime& lifetime);
    void live(const Lifetime& lifetime);
  };

  /// Facts plus how far the operation came. Times are 0 for stages not yet reached.
  struct Record : Facts {
    std::string program_name;
    State state = State::queued;
    bool unequal = false;    // shared_unequally()
    bool by_caller = false;  // finished by the thread that waited for it, not by the progress engine's
    std::int64_t started = 0;
    std::int64_t finished = 0;
  };

  struct Counter {
    std::uint64_t operations = 0;
    std::uint64_t failures = 0;
    std::uint64_t bytes = 0;               // the larger of this rank's input and output
    std::int64_t queued_nanoseconds = 0;   // from the call until something moved
    std::int64_t running_nanoseconds = 0;  // from then to the end: moving and waiting for peers
  };

  /// Whose recorder this is. `members`: the ranks' numbers in the job.
  struct Identity {
    std::string group;
    std::uint32_t rank = 0;
    std::vector<std::uint32_t> members;
  };

  class Slot;
  /// An operation's handle to its record; empty if it has none. Used by the owner of progress.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Recorder* recorder, Slot* slot) : recorder_(recorder), slot_(slot) {}
    void admitted() const;
    /// It runs as `two_shot` after all (core/group/rail_balance.hpp).
    void shared_unequally() const;
    void started() const;  // the first call counts
    void started(std::chrono::steady_clock::time_point at) const;
    void finished(bool failed, bool by_caller) const;

   private:
    Recorder* recorder_ = nullptr;
    Slot* slot_ = nullptr;
  };

  /// With 0 `entries`, no operations are recorded or counted.
  Recorder(Identity identity, std::size_t entries);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// SYNTONY_TRACE_ENTRIES, or 2000. Must be equal on all ranks, because 0 also skips comparing clocks. Throws
  /// Error(invalid) if it is not a number or exceeds a million.
  [[nodiscard]] static std::size_t entries_wanted();

  /// Called by callers, one at a time (under the group's mutex). Fills in `number` and `program`.
  [[nodiscard]] Ticket open(Facts facts, std::string_view program);

  // From here on: any thread, at any time.

  /// Oldest first.
  [[nodiscard]] std::vector<Record> records() const;
  [[nodiscard]] std::array<Counter, kKinds> counters() const;
  /// By peer, the bytes of collectives and messages sent to it in frames, without headers. Algorithm `shared` sends
  /// none: its ranks read one another's memory. Written by the owner of progress.
  [[nodiscard]] std::span<SentBytes> sent() { return sent_; }
  [[nodiscard]] std::uint64_t unrecorded() const { return unrecorded_.load(std::memory_order_relaxed); }
  /// Collectives without a chosen priority launched so far.
  [[nodiscard]] std::uint64_t launched() const { return launched_.load(std::memory_order_relaxed); }
  [[nodiscard]] const Identity& identity() const { return identity_; }
  /// This rank's number in the job.
  [[nodiscard]] std::uint32_t job_rank() const { return identity_.members[identity_.rank]; }
  /// The wires of its transports, for dumps and counters. Call before the first dump.
  void set_wires(std::vector<std::shared_ptr<Wires>> wires) { wires_ = std::move(wires); }
  [[nodiscard]] const std::vector<std::shared_ptr<Wires>>& wires() const { return wires_; }
  /// Why the group ended; empty if it has not.
  [[nodiscard]] std::string failure() const;
  void set_failure(const std::string& sentence);
  /// What to add to nanoseconds_now() here to get the clock of the group's rank 0, as far as it is known yet.
  [[nodiscard]] std::int64_t clock_offset() const {
    return clock_offset_ ? clock_offset_->load(std::memory_order_relaxed) : 0;
  }
  /// Null: the clock is the same. Call before the first dump.
  void set_clock_offset(std::shared_ptr<const std::atomic<std::int64_t>> nanoseconds) {
    clock_offset_ = std::move(nanoseconds);
  }

 private:
  static constexpr std::size_t kPage = 16;
  Slot& slot(std::uint64_t number);
  /// Written by one thread at a time, read by all: no read-modify-write, so no bus lock.
  struct SharedCounter {
    std::atomic<std::uint64_t> operations{0}, failures{0}, bytes{0};
    std::atomic<std::int64_t> queued{0}, running{0};
  };

  const Identity identity_;
  const std::size_t entries_;
  std::vector<std::unique_ptr<Slot[]>> pages_;  // the ring, kPage slots each, allocated on demand
  std::uint64_t next_ = 0;                      // number of the next record; like the following one, used by callers
  std::uint32_t last_name_ = 0;
  std::atomic<std::uint64_t> launched_{0};
  std::atomic<std::uint64_t> unrecorded_{0};
  std::array<SharedCounter, kKinds> counters_;
  std::vector<SentBytes> sent_;
  std::vector<std::shared_ptr<Wires>> wires_;
  std::shared_ptr<const std::atomic<std::int64_t>> clock_offset_;
  mutable std::mutex mutex_;  // guards the next two and the growth of pages_; callers take it for a new name or page,
                              // the owner for a failure
  std::vector<std::string> names_;
  std::string failure_;
};

/// "all_reduce", .., "barrier", "send", "receive"
[[nodiscard]] std::string_view name_of_kind(std::uint8_t kind);
/// "queued", ..
[[nodiscard]] std::string_view name_of(Recorder::State state);

}  // namespace syntony
