#include "core/one_host/shared_rounds.hpp"

#include <utility>

namespace syntony {

SharedRounds::SharedRounds(const ShmSegment& segment, ShmTransport& transport, std::uint32_t rank,
                           std::vector<pid_t> processes, Priority priority)
    : segment_(segment),
      transport_(transport),
      rank_(rank),
      priority_(priority),
      seen_(segment.ranks().size(), 0),
      memory_(std::move(processes)) {}

StageBuffer& SharedRounds::buffer(std::uint32_t rank, std::uint64_t round) const {
  return segment_.stage_buffer(rank, priority_, round % 2);
}

StageBuffer& SharedRounds::buffer(std::uint32_t rank) const { return buffer(rank, round_); }
StageBuffer& SharedRounds::next() { return buffer(rank_, round_ + 1); }

bool SharedRounds::published(std::uint32_t peer) const {
  return peer == rank_ || seen_[peer] >= round_ || buffer(peer).stamp.load(std::memory_order_acquire) >= round_;
}

bool SharedRounds::arrived(std::uint32_t peer) {
  if (peer == rank_ || seen_[peer] >= round_) return true;
  if (!published(peer)) return false;
  if (buffer(peer).fingerprint != stamp_.fingerprint) throw SharedMismatch(peer, priority_, stamp_.sequence);
  seen_[peer] = round_;
  return true;
}

bool SharedRounds::all_arrived() {
  for (std::uint32_t peer = 0; peer < ranks(); ++peer) {
    if (!arrived(peer)) return false;
  }
  return true;
}

void SharedRounds::publish(const Stamp& operation) {
  StageBuffer& own = next();
  stamp_ = operation;
  own.fingerprint = operation.fingerprint;
  own.stamp.store(++round_, std::memory_order_release);
  transport_.touch_all();
}

}  // namespace syntony
