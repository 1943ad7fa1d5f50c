#include "core/one_host/shared_exchange.hpp"

#include <utility>

namespace syntony {

SharedExchange::SharedExchange(const ShmSegment& segment, ShmTransport& transport, std::uint32_t rank,
                               std::vector<pid_t> processes, Priority priority)
    : segment_(segment),
      transport_(transport),
      rank_(rank),
      priority_(priority),
      seen_(segment.ranks().size(), 0),
      memory_(std::move(processes)) {}

SharedPlace& SharedExchange::place(std::uint32_t rank, std::uint64_t round) const {
  return segment_.place(rank, priority_, round % 2);
}

SharedPlace& SharedExchange::place(std::uint32_t rank) const { return place(rank, round_); }
SharedPlace& SharedExchange::next() { return place(rank_, round_ + 1); }

bool SharedExchange::published(std::uint32_t peer) const {
  return peer == rank_ || seen_[peer] >= round_ || place(peer).stamp.load(std::memory_order_acquire) >= round_;
}

bool SharedExchange::arrived(std::uint32_t peer) {
  if (peer == rank_ || seen_[peer] >= round_) return true;
  if (!published(peer)) return false;
  if (place(peer).fingerprint != stamp_.fingerprint) throw SharedMismatch(peer, priority_, stamp_.sequence);
  seen_[peer] = round_;
  return true;
}

bool SharedExchange::all_arrived() {
  for (std::uint32_t peer = 0; peer < ranks(); ++peer) {
    if (!arrived(peer)) return false;
  }
  return true;
}

void SharedExchange::publish(const Stamp& operation) {
  SharedPlace& own = next();
  stamp_ = operation;
  own.fingerprint = operation.fingerprint;
  own.stamp.store(++round_, std::memory_order_release);
  transport_.touch_all();
}

}  // namespace syntony
