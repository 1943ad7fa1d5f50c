// Slots: where an aggregator keeps the packets of one sum until all have arrived, and the sum until all workers have
// it.
//
// Slots of one job, if an aggregator has separate ones for each (Slots):
//
//      packet   0   1   2   3   4   5   6   7   8 ..        window of 4: two slots for each place in it
//      slot     0   1   2   3   4   5   6   7   0 ..
//
// A worker that sends packet 8 has the sum of 4, so every worker has sent 4 and has the sum of 0: slot 0 is free. Until
// then the slot answers workers that have lost the sum. These are SwitchML's two versions of a slot (Sapio et al.,
// NSDI'21, section 3.5). Either the parts are kept separately and added in rank order once all have arrived, so that
// the bits are always the same; or each is added on arrival (Li et al., iSwitch, ISCA'19), which needs the memory of
// one part for any number of ranks, and gives bits that are equal on all ranks but depend on the order of arrival.
//
// Slots of an aggregator that shares them among all jobs (SharedSlots), as in ATP (Lao et al., NSDI'21; known here from
// its abstract and its published code):
//
//      job A        ▒▒▒▒▒▒▒▒          packets 5 to 8
//      slot     0 1 2 3 4 5 6 7 8 9
//      job B      ░░░░░░░░            packets 2 to 5: 3 to 5 find slots that A has, and the server above adds them
//
// A packet's slot follows from its job and number. The first packet to arrive holds it until its sum has come back from
// above. Successive packets of a job have successive slots, so a job never blocks itself.
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
    filling,  // some parts have arrived
    summed,   // all parts have: the sum is on its way up
    known,    // the sum over the whole job is here
    passing,  // parts are passed on: nothing is held, and others may take the slot
  };
  enum class Arrival : std::uint8_t {
    stale,     // belongs to a sum that everybody has
    part,      // one more; others are missing
    complete,  // the last one: the slot is summed
    again,     // a duplicate
    differs,   // disagrees with the others
    early,     // the sum in the slot is not finished
  };

  State state = State::free;
  AggregationPacket first;  // header of the first part, without its path
  std::vector<bool> seen;   // by child
  std::vector<Clock::time_point> came;
  std::size_t arrived = 0;
  std::size_t stride = 0;
  std::vector<std::byte> parts;  // by child, concatenated
  std::vector<std::byte> sum;
  std::vector<std::byte> next_sum;  // memory for adding on arrival
  bool on_arrival = false;
  bool marked = false;  // one of the parts, or the sum from above, was
  Clock::time_point opened;
  Clock::time_point sent_up;
  std::uint32_t waited_above = 0;  // as reported from above

  /// Opens the slot with the first part of a packet and memory for parts of `stride` bytes. `add_at_once`: add on
  /// arrival.
  void open(const AggregationPacket& head, std::size_t children, std::size_t stride, bool add_at_once = false);
  /// Adds a part of `child`, or one passed on by an aggregator that is the child or is below it.
  Arrival put(std::size_t child, const AggregationPacket& head, const std::byte* payload);
  /// Total microseconds that the part of `child` has waited for others.
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
  /// Handles the arrival of a child's part.
  Place take(std::size_t child, const AggregationPacket& head, const std::byte* payload);
  /// The slot that holds a packet's parts or sum; null if none does.
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

  /// The slot for a packet of the job with that token; another packet may occupy it.
  [[nodiscard]] Slot& at(std::uint64_t token, std::uint64_t sequence);
  /// The same if this packet occupies it, else null.
  [[nodiscard]] Slot* find(std::uint64_t token, std::uint64_t sequence);
  /// A slot that waits for that child's part; null for none.
  [[nodiscard]] const Slot* waiting_for(std::uint64_t token, std::size_t child) const;
  /// Releases the slots of a job that has ended.
  void forget(std::uint64_t token);

 private:
  std::vector<Slot> slots_;
};

}  // namespace syntony
