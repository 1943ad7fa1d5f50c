#include "core/one_host/shared_operation.hpp"

namespace syntony {
namespace {

// From these sizes of a block on, reading the peers' buffers beat copies through the cache (2 and 4 ranks, 2 cores with
// 1 MiB of cache each): what only moves is spared a copy early, what is added up is in cache anyway.
constexpr std::size_t kMovedBytes = std::size_t{128} << 10U;
constexpr std::size_t kAddedBytes = std::size_t{32} << 20U;

std::unique_ptr<SharedSteps> steps_for(const SharedJob& job) {
  const std::size_t bytes = job.call.longest() * job.element_bytes;
  const bool large = bytes >= (job.facts.reduces ? kAddedBytes : kMovedBytes);
  // `reduce` has no place where those who get nothing could leave their share of the sum.
  const bool readable = job.call.collective != Collective::reduce && job.rounds.memory().open_to_all.value_or(true);
  return large && readable ? reference_steps(job) : staged_steps(job);
}

}  // namespace

SharedOperation::SharedOperation(SharedRounds& rounds, const Descriptor& descriptor, const Call& call)
    : rounds_(rounds),
      job_{.rounds = rounds, .call = call},
      stamp_{descriptor.sequence, descriptor.fingerprint},
      ticket_(rounds.enter()) {}

bool SharedOperation::arrived() {
  for (; next_ < rounds_.ranks(); ++next_) {
    if (next_ == rounds_.rank() || !steps_->needs(next_)) continue;
    if (!rounds_.arrived(next_)) return false;
  }
  return true;
}

bool SharedOperation::step() {
  if (done_ || !rounds_.is_next(ticket_)) return false;
  if (!steps_) steps_ = steps_for(job_);
  bool moved = false;
  if (!shown_ && !steps_->done()) {
    if (!rounds_.all_arrived()) return false;
    steps_->show();
    rounds_.publish(stamp_);
    shown_ = moved = true;
    next_ = 0;
  }
  if (shown_) {
    if (!arrived()) return moved;
    if (steps_->read()) shown_ = false;
  }
  done_ = !shown_ && steps_->done();
  if (done_) rounds_.leave();
  return true;
}

std::vector<std::uint32_t> SharedOperation::waiting_for() const {
  std::vector<std::uint32_t> peers;
  for (std::uint32_t peer = 0; peer < rounds_.ranks(); ++peer) {
    const bool needed = !shown_ || steps_->needs(peer);
    if (needed && !rounds_.published(peer)) peers.push_back(peer);
  }
  return peers;
}

}  // namespace syntony
