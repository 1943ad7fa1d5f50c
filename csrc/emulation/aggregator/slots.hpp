// Slots: where an aggregator keeps the packets of one sum until all have come, and the sum until all have it.
//
//      packet   0   1   2   3   4   5   6   7   8 ..        window of 4: two slots for each place in it
//      slot     0   1   2   3   4   5   6   7   0 ..
//
// Who sends packet 8 has the sum of 4, so everybody has sent 4, and so has the sum of 0: slot 0 is free. Until then it
// answers those who have lost the sum. These are SwitchML's two versions of a slot (Sapio et al., NSDI'21,
// section 3.5). The parts are kept apart and added in rank order when all have come, so that the bits are always the
// same.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/in_network/aggregation_wire.hpp"

namespace syntony {

struct Slot {
  enum class State : std::uint8_t {
    free,
    filling,  // some parts have come
    summed,   // all have: the sum is on its way up
    known,    // the sum of the whole job is here
  };
  State state = State::free;
  AggregationPacket first;  // what the first part says
  std::vector<bool> seen;   // by child
  std::size_t arrived = 0;
  std::vector<std::byte> parts;  // by child, one after another
  std::vector<std::byte> sum;
  std::chrono::steady_clock::time_point sent_up;
};

class Slots {
 public:
  Slots() = default;
  /// `capacity`: bytes of the largest part.
  Slots(std::size_t window, std::size_t children, std::size_t capacity);

  enum class Arrival : std::uint8_t {
    stale,     // of a sum that everybody has
    part,      // one more; others are missing
    complete,  // the last: the slot is summed
    again,     // it was here before
    differs,   // it is not what others bring
    early,     // what the slot holds is not over
  };
  struct Place {
    Arrival arrival;
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
  void add(Slot& slot) const;

  std::size_t children_ = 0;
  std::size_t capacity_ = 0;
  std::size_t stride_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace syntony
