// Slots: where an aggregator keeps the packets of one sum until all have come, and the sum until all have it.
//
// A job's own, of an aggregator that has some for each (Slots):
//
//      packet   0   1   2   3   4   5   6   7   8 ..        window of 4: two slots for each place in it
//      slot     0   1   2   3   4   5   6   7   0 ..
//
// Who sends packet 8 has the sum of 4, so everybody has sent 4, and so has the sum of 0: slot 0 is free. Until then it
// answers those who have lost the sum. These are SwitchML's two versions of a slot (Sapio et al., NSDI'21,
// section 3.5). The parts are kept apart and added in rank order when all have come, so that the bits are always the
// same; or each is added as it comes (Li et al., iSwitch, ISCA'19), which needs the memory of one part for any number
// of ranks, and gives bits, equal on all ranks, that depend on who came first.
//
// Those of an aggregator that shares them among all jobs (SharedSlots), as in ATP (Lao et al., NSDI'21; known here from
// its abstract and its published code):
//
//      job A        ▒▒▒▒▒▒▒▒          packets 5 to 8
//      slot     0 1 2 3 4 5 6 7 8 9
//      job B      ░░░░░░░░            packets 2 to 5: 3 to 5 find slots that A has, and the server above adds them
//
// A packet's slot follows from its job and number. The first to come has it, until its sum has come back from above.
// Successive packets of a job have successive slots, so that a job is never in its own way.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/in_network/aggregation_wire.hpp"

namespace syntony {

struct Slot {
  using Clock = std::chrono::steady_clock;
  enum class State : std::uint8_t {
    free,
    filling,  // some parts have come
    summed,   // all have: the sum is on its way up
    known,    // the sum of the whole job is here
    passing,  // parts are passed on: nothing is held, and others may have the slot
  };
  enum class Arrival : std::uint8_t {
    stale,     // of a sum that everybody has
    part,      // one more; others are missing
    complete,  // the last: the slot is summed
    again,     // it was here before
    differs,   // it is not what others bring
    early,     // what the slot holds is not over
  };

  State state = State::free;
  AggregationPacket first;  // what the first part says, without its way
  std::vector<bool> seen;   // by child
  std::vector<Clock::time_point> came;
  std::size_t arrived = 0;
  std::size_t stride = 0;
  std::vector<std::byte> parts;  // by child, one after another
  std::vector<std::byte> sum;
  std::vector<std::byte> next_sum;  // memory for adding on arrival
  bool on_arrival = false;
  bool marked = false;  // one of the parts, or the sum from above
  Clock::time_point opened;
  Clock::time_point sent_up;
  std::uint32_t waited_above = 0;  // as the one above says

  /// Begins with the first part of a packet, in memory for parts of `stride` bytes. `add_at_once`: each on arrival.
  void open(const AggregationPacket& head, std::size_t children, std::size_t stride, bool add_at_once = false);
  /// A part of `child`, or one that an aggregator has passed on which is the child, or stands below it.
  Arrival put(std::size_t child, const AggregationPacket& head, const std::byte* payload);
  /// Microseconds that the part of `child` has waited for others, in all.
  [[nodiscard]] std::uint32_t waited(std::size_t child, bool is_root) const;
  [[nodiscard]] const std::byte* part(std::size_t child) const { return parts.data() + child * stride; }

 private:
  /// A part that was passed on.
  struct Passed {
    std::size_t child;
    std::vector<AggregationPlace> path;
    std::vector<std::byte> bytes;
  };

  void bring(std::size_t child, const std::byte* bytes);
  bool keep(std::size_t child, const AggregationPacket& head, const std::byte* payload);
  [[nodiscard]] std::optional<std::vector<std::byte>> made_of(std::size_t child,
                                                              const std::vector<AggregationPlace>& path) const;
  void add(std::byte* dst, std::span<const std::byte*> sources) const;

  std::vector<Passed> passed_;
};

class Slots {
 public:
  Slots() = default;
  /// `capacity`: bytes of the largest part.
  Slots(std::size_t window, std::size_t children, std::size_t capacity, bool on_arrival);

  struct Place {
    Slot::Arrival arrival;
    Slot* slot;
  };
  /// A child's part has come.
  Place take(std::size_t child, const AggregationPacket& head, const std::byte* payload);
  /// The slot that holds a packet's parts or sum; null when none does.
  [[nodiscard]] Slot* find(std::uint64_t sequence);
  /// The slot of the oldest sum that is not known; null for none.
  [[nodiscard]] Slot* oldest();
  [[nodiscard]] std::size_t capacity() const { return capacity_; }

 private:
  std::size_t children_ = 0;
  std::size_t capacity_ = 0;
  bool on_arrival_ = false;
  std::vector<Slot> slots_;
};

class SharedSlots {
 public:
  SharedSlots() = default;
  explicit SharedSlots(std::size_t count) : slots_(count) {}

  /// Where a packet of the job of that token belongs; somebody else may be there.
  [[nodiscard]] Slot& at(std::uint64_t token, std::uint64_t sequence);
  /// The same where it is this packet that is there; else null.
  [[nodiscard]] Slot* find(std::uint64_t token, std::uint64_t sequence);
  /// One that waits for that child's part; null for none.
  [[nodiscard]] const Slot* waiting_for(std::uint64_t token, std::size_t child) const;
  /// A job has ended.
  void forget(std::uint64_t token);

 private:
  std::vector<Slot> slots_;
};

}  // namespace syntony
