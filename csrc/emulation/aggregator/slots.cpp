#include "emulation/aggregator/slots.hpp"

#include <algorithm>
#include <cstring>

#include "core/kernels/kernels.hpp"

namespace syntony {

Slots::Slots(std::size_t window, std::size_t children, std::size_t capacity)
    : children_(children), capacity_(capacity), stride_((capacity + 63) / 64 * 64), slots_(2 * window) {}

Slots::Place Slots::take(std::size_t child, const AggregationPacket& head, const std::byte* payload) {
  Slot& slot = slots_[head.sequence % slots_.size()];
  if (slot.state != Slot::State::free && slot.first.sequence != head.sequence) {
    if (slot.first.sequence > head.sequence) return {Arrival::stale, &slot};
    if (slot.state != Slot::State::known) return {Arrival::early, &slot};
    slot.state = Slot::State::free;
  }
  if (slot.state == Slot::State::free) {
    slot.state = Slot::State::filling;
    slot.first = head;
    slot.seen.assign(children_, false);
    slot.arrived = 0;
    slot.sent_up = {};
    slot.parts.resize(children_ * stride_);
    slot.sum.resize(stride_);
  }
  if (!slot.first.fits(head)) return {Arrival::differs, &slot};
  if (slot.seen[child]) return {Arrival::again, &slot};
  slot.seen[child] = true;
  std::memcpy(slot.parts.data() + child * stride_, payload, head.length);
  if (++slot.arrived < children_) return {Arrival::part, &slot};
  add(slot);
  slot.state = Slot::State::summed;
  return {Arrival::complete, &slot};
}

Slot* Slots::find(std::uint64_t sequence) {
  if (slots_.empty()) return nullptr;
  Slot& slot = slots_[sequence % slots_.size()];
  return slot.state != Slot::State::free && slot.first.sequence == sequence ? &slot : nullptr;
}

Slot* Slots::oldest() {
  Slot* oldest = nullptr;
  for (Slot& slot : slots_) {
    if (slot.state == Slot::State::free || slot.state == Slot::State::known) continue;
    if (oldest == nullptr || slot.first.sequence < oldest->first.sequence) oldest = &slot;
  }
  return oldest;
}

void Slots::add(Slot& slot) const {
  const auto format = static_cast<NumberFormat>(slot.first.format);
  std::vector<const std::byte*> parts(children_);
  for (std::size_t child = 0; child < children_; ++child) parts[child] = slot.parts.data() + child * stride_;
  const std::size_t payload = slot.first.count * wire_bytes(format);
  if (payload > 0) add_on_wire(format, slot.sum.data(), parts, slot.first.count);
  const std::size_t exponents = slot.first.length - payload;
  if (exponents == 0) return;
  for (const std::byte*& part : parts) part += payload;
  reduce(DType::uint8, ReduceOp::max, slot.sum.data() + payload, parts, exponents);
}

}  // namespace syntony
