#include "core/in_network/packets_in_flight.hpp"

namespace syntony {
namespace {

using State = PacketsInFlight::Packet::State;

constexpr std::uint64_t kOutOfOrder = 8;  // a packet is lost once this many later ones have their sums

}  // namespace

bool PacketsInFlight::has_room(std::size_t chunk) const { return slots_[slot_of(chunk)].state == State::free; }

const PacketsInFlight::Packet* PacketsInFlight::find(std::size_t chunk) const {
  const Packet& packet = slots_[slot_of(chunk)];
  return packet.state != State::free && packet.chunk == chunk ? &packet : nullptr;
}

std::optional<std::size_t> PacketsInFlight::first_lost() const {
  return lost_.empty() ? std::nullopt : std::optional(*lost_.begin());
}

PacketsInFlight::Time PacketsInFlight::oldest() {
  while (!current(in_order_.front())) in_order_.pop_front();
  return slots_[in_order_.front().slot].sent;
}

void PacketsInFlight::sent(std::size_t chunk, Time now, As as) {
  Packet& packet = slots_[slot_of(chunk)];
  if (packet.state != State::under_way) ++under_way_;
  lost_.erase(chunk);
  packet = {chunk, ++order_, now, as, State::under_way};
  in_order_.push_back({slot_of(chunk), order_});
}

void PacketsInFlight::came(std::size_t chunk) {
  Packet& packet = slots_[slot_of(chunk)];
  if (packet.state == State::under_way) --under_way_;
  lost_.erase(chunk);
  packet.state = State::free;
  while (!in_order_.empty() && in_order_.front().order + kOutOfOrder < packet.order) {
    const Sent before = in_order_.front();
    in_order_.pop_front();
    if (current(before)) lose(before.slot);
  }
}

void PacketsInFlight::lose_all() {
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].state == State::under_way) lose(slot);
  }
}

bool PacketsInFlight::current(const Sent& sent) const {
  return slots_[sent.slot].state == State::under_way && slots_[sent.slot].order == sent.order;
}

void PacketsInFlight::lose(std::size_t slot) {
  slots_[slot].state = State::lost;
  --under_way_;
  lost_.insert(slots_[slot].chunk);
}

}  // namespace syntony
