// Which packets of an operation are in flight, and which of them are lost:
//
//  sent    4 5 6 7 8 9 .. 14      each packet has the slot of its number, within one window
//  sums      5 6 7 8 9 .. 14      of enough packets sent later: 4, or its sum, is lost
//
// A lost packet stays lost until it is sent, or asked for, again; the oldest is handled first.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <vector>

namespace syntony {

class PacketsInFlight {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// What was sent: a packet, the same again, or a question about it.
  enum class As : std::uint8_t { first, question, again };

  struct Packet {
    std::size_t chunk = 0;
    std::uint64_t order = 0;  // of its last sending
    Time sent;
    As as = As::first;
    enum class State : std::uint8_t { free, under_way, lost } state = State::free;
  };

  explicit PacketsInFlight(std::size_t slots) : slots_(slots) {}

  [[nodiscard]] std::size_t slots() const { return slots_.size(); }
  [[nodiscard]] std::size_t slot_of(std::size_t chunk) const { return chunk % slots_.size(); }
  [[nodiscard]] std::size_t under_way() const { return under_way_; }
  /// True if the slot of a chunk is free for it.
  [[nodiscard]] bool has_room(std::size_t chunk) const;
  /// The packet of a chunk, in flight or lost; null if it is neither.
  [[nodiscard]] const Packet* find(std::size_t chunk) const;
  [[nodiscard]] std::optional<std::size_t> first_lost() const;
  /// When the packet that has been in flight longest was sent. At least one must be in flight.
  [[nodiscard]] Time oldest();

  void sent(std::size_t chunk, Time now, As as);
  /// The sum of a packet known to `find` has arrived: its slot is free. Packets sent well before it are lost.
  void came(std::size_t chunk);
  void lose_all();

 private:
  struct Sent {
    std::size_t slot;
    std::uint64_t order;
  };
  [[nodiscard]] bool current(const Sent& sent) const;
  void lose(std::size_t slot);

  std::vector<Packet> slots_;
  std::deque<Sent> in_order_;  // in order of sending; those that have arrived since are skipped
  std::set<std::size_t> lost_;
  std::size_t under_way_ = 0;
  std::uint64_t order_ = 0;
};

}  // namespace syntony
