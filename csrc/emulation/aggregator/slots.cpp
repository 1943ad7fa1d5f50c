#include "emulation/aggregator/slots.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/kernels/kernels.hpp"

namespace syntony {
namespace {

std::uint32_t microseconds_of(Slot::Clock::duration time) {
  const auto found = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(found, 0, 0xffffffff));
}

}  // namespace

// ---- one slot -------------------------------------------------------------------------------------------------------

void Slot::open(const AggregationPacket& head, std::size_t children, std::size_t stride_, bool add_at_once) {
  state = State::filling;
  first = head;
  first.flags = first.depth = 0;
  first.path = {};
  seen.assign(children, false);
  came.resize(children);
  arrived = 0;
  stride = stride_;
  on_arrival = add_at_once;
  if (on_arrival) {
    next_sum.resize(stride);
  } else {
    parts.resize(children * stride);
  }
  sum.resize(stride);
  marked = false;
  opened = Clock::now();
  sent_up = {};
  waited_above = 0;
  passed_.clear();
}

Slot::Arrival Slot::put(std::size_t child, const AggregationPacket& head, const std::byte* payload) {
  if (!first.fits(head)) return Arrival::differs;
  if (seen[child]) return Arrival::again;
  marked = marked || head.has(AggregationPacket::kMarked);
  if (head.depth == 0) {
    bring(child, payload);
  } else {
    if (!keep(child, head, payload)) return Arrival::again;
    const auto whole = made_of(child, {});
    if (!whole) return Arrival::part;
    bring(child, whole->data());
  }
  std::erase_if(passed_, [child](const Passed& one) { return one.child == child; });
  seen[child] = true;
  came[child] = Clock::now();
  if (++arrived < seen.size()) return Arrival::part;
  state = State::summed;
  if (on_arrival) return Arrival::complete;
  std::vector<const std::byte*> sources(seen.size());
  for (std::size_t one = 0; one < sources.size(); ++one) sources[one] = part(one);
  add(sum.data(), sources);
  return Arrival::complete;
}

void Slot::bring(std::size_t child, const std::byte* bytes) {
  if (!on_arrival) {
    std::memcpy(parts.data() + child * stride, bytes, first.length);
  } else if (arrived == 0) {
    std::memcpy(sum.data(), bytes, first.length);
  } else {
    std::array<const std::byte*, 2> sources{sum.data(), bytes};
    add(next_sum.data(), sources);
    std::swap(sum, next_sum);
  }
}

std::uint32_t Slot::waited(std::size_t child, bool is_root) const {
  if (is_root) return microseconds_of(Clock::now() - came[child]);
  return microseconds_of(sent_up - came[child]) + waited_above;
}

/// True if it is new.
bool Slot::keep(std::size_t child, const AggregationPacket& head, const std::byte* payload) {
  const std::vector<AggregationPlace> path(head.path.begin(), head.path.begin() + head.depth);
  const auto here = [&](const Passed& one) { return one.child == child && one.path == path; };
  if (std::ranges::any_of(passed_, here) || passed_.size() >= kMostWorkers) return false;
  passed_.push_back({child, path, {payload, payload + head.length}});
  return true;
}

/// The part of the child, or of the aggregator or worker at `path` below it: as received, or added up from those below
/// in the way in which the one that passed them on would have added them. Empty if some are missing.
std::optional<std::vector<std::byte>> Slot::made_of(std::size_t child,
                                                    const std::vector<AggregationPlace>& path) const {
  std::size_t children = 0;
  for (const Passed& one : passed_) {
    if (one.child != child || one.path.size() < path.size() || !std::equal(path.begin(), path.end(), one.path.begin()))
      continue;
    if (one.path.size() == path.size()) return one.bytes;
    children = one.path[path.size()].children;
  }
  std::vector<std::vector<std::byte>> below;
  for (std::size_t at = 0; at < children; ++at) {
    std::vector<AggregationPlace> deeper = path;
    deeper.push_back({static_cast<std::uint16_t>(at), static_cast<std::uint16_t>(children)});
    auto found = made_of(child, deeper);
    if (!found) return std::nullopt;
    below.push_back(std::move(*found));
  }
  if (below.empty()) return std::nullopt;
  std::vector<const std::byte*> sources;
  for (const auto& one : below) sources.push_back(one.data());
  std::vector<std::byte> whole(first.length);
  add(whole.data(), sources);
  return whole;
}

void Slot::add(std::byte* dst, std::span<const std::byte*> sources) const {
  const auto format = static_cast<NumberFormat>(first.format);
  const std::size_t payload = first.count * wire_bytes(format);
  if (payload > 0) add_on_wire(format, dst, sources, first.count);
  const std::size_t exponents = first.length - payload;
  if (exponents == 0) return;
  for (const std::byte*& source : sources) source += payload;
  reduce(DType::uint8, ReduceOp::max, dst + payload, sources, exponents);
}

// ---- a job's own ----------------------------------------------------------------------------------------------------

Slots::Slots(std::size_t window, std::size_t children, std::size_t capacity, bool on_arrival)
    : children_(children), capacity_(capacity), on_arrival_(on_arrival), slots_(2 * window) {}

Slots::Place Slots::take(std::size_t child, const AggregationPacket& head, const std::byte* payload) {
  Slot& slot = slots_[head.sequence % slots_.size()];
  if (slot.state != Slot::State::free && slot.first.sequence != head.sequence) {
    if (slot.first.sequence > head.sequence) return {Slot::Arrival::stale, &slot};
    if (slot.state != Slot::State::known) return {Slot::Arrival::early, &slot};
    slot.state = Slot::State::free;
  }
  if (slot.state == Slot::State::free) slot.open(head, children_, (capacity_ + 63) / 64 * 64, on_arrival_);
  return {slot.put(child, head, payload), &slot};
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

// ---- everybody's ----------------------------------------------------------------------------------------------------

Slot& SharedSlots::at(std::uint64_t token, std::uint64_t sequence) {
  return slots_[(token % slots_.size() + sequence % slots_.size()) % slots_.size()];  // tokens are random
}

Slot* SharedSlots::find(std::uint64_t token, std::uint64_t sequence) {
  if (slots_.empty()) return nullptr;
  Slot& slot = at(token, sequence);
  const bool ours = slot.state != Slot::State::free && slot.first.token == token && slot.first.sequence == sequence;
  return ours ? &slot : nullptr;
}

const Slot* SharedSlots::waiting_for(std::uint64_t token, std::size_t child) const {
  const auto found = std::ranges::find_if(slots_, [token, child](const Slot& slot) {
    return slot.state == Slot::State::filling && slot.first.token == token && !slot.seen[child];
  });
  return found != slots_.end() ? &*found : nullptr;
}

void SharedSlots::forget(std::uint64_t token) {
  for (Slot& slot : slots_) {
    if (slot.state != Slot::State::free && slot.first.token == token) slot.state = Slot::State::free;
  }
}

}  // namespace syntony
