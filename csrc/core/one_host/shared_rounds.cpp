#include "core/one_host/shared_rounds.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "core/kernels/fetch_to_write.hpp"

namespace syntony {

SharedRounds::SharedRounds(const ShmSegment& segment, ShmTransport& transport, std::uint32_t rank,
                           std::vector<pid_t> processes, Priority priority, unsigned looks, bool swaps)
    : transport_(transport),
      looks_(looks),
      swaps_(swaps),
      rank_(rank),
      priority_(priority),
      provided_(segment.ranks().size(), 0),
      seen_(segment.ranks().size(), 0),
      memory_(std::move(processes)) {
  for (std::uint32_t peer = 0; peer < ranks(); ++peer) {
    buffers_.push_back({&segment.stage_buffer(peer, priority, 0), &segment.stage_buffer(peer, priority, 1)});
  }
}

StageBuffer& SharedRounds::buffer(std::uint32_t rank, std::uint64_t round) const { return *buffers_[rank][round % 2]; }

StageBuffer& SharedRounds::stage(StagePart part, std::uint32_t rank, std::uint64_t round) const {
  return buffer(swaps_ ? (rank + uses(part, round)) % 2 : rank, round);
}

StageBuffer& SharedRounds::buffer(std::uint32_t rank) const { return buffer(rank, round_); }
StageBuffer& SharedRounds::next() { return buffer(rank_, round_ + 1); }

bool SharedRounds::published(std::uint32_t peer) const {
  return peer == rank_ || seen_[peer] >= round_ || buffer(peer).stamp.load(std::memory_order_acquire) >= round_;
}

bool SharedRounds::arrived(std::uint32_t peer) {
  if (peer == rank_ || seen_[peer] >= round_) return true;
  for (unsigned looks = 0; !published(peer);) {
    if (++looks >= looks_) return false;
  }
  if (buffer(peer).fingerprint != stamp_.fingerprint) throw SharedMismatch(peer, priority_, stamp_.sequence);
  seen_[peer] = round_;
  if (provided_[peer] < provided_[rank_]) map(peer);
  return true;
}

bool SharedRounds::all_arrived() {
  for (std::uint32_t peer = 0; peer < ranks(); ++peer) {
    if (!arrived(peer)) return false;
  }
  return true;
}

void SharedRounds::fetch_next() const { fetch_to_write(&buffer(rank_, round_ + 1).stamp); }

void SharedRounds::provide(std::size_t bytes) {
  if (bytes <= provided_[rank_]) return;
#ifdef MADV_POPULATE_WRITE
  populate(rank_, bytes, MADV_POPULATE_WRITE);
#endif
}

void SharedRounds::map(std::uint32_t peer) {
#ifdef MADV_POPULATE_READ
  populate(peer, provided_[rank_], MADV_POPULATE_READ);
#endif
}

void SharedRounds::populate(std::uint32_t rank, std::size_t bytes, int how) {
  provided_[rank] = bytes;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (StageBuffer* const buffer : buffers_[rank]) {
    std::byte* const begin = buffer->stage.data();
    const std::uintptr_t into = reinterpret_cast<std::uintptr_t>(begin) % page;
    ::madvise(begin - into, into + bytes, how);  // older systems refuse, and provide pages later
  }
}

void SharedRounds::publish(const Stamp& operation) {
  StageBuffer& own = next();
  stamp_ = operation;
  own.fingerprint = operation.fingerprint;
  own.stamp.store(++round_, std::memory_order_release);
  transport_.touch_all();
}

}  // namespace syntony
