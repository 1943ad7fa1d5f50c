#include "core/one_host/shared_operation.hpp"

#include "core/one_host/shared_way.hpp"

namespace syntony {
namespace {

std::unique_ptr<SharedSteps> steps_for(const SharedJob& job) {
  const bool readable = job.rounds.memory().open_to_all.value_or(true);
  const SharedWay way = shared_way(job.call.collective, job.ranks, job.call.longest() * job.element_bytes, readable);
  return way == SharedWay::reference ? reference_steps(job) : staged_steps(job);
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

bool SharedOperation::show() {
  if (shown_ || done_ || !rounds_.is_next(ticket_)) return false;
  if (!steps_) steps_ = steps_for(job_);
  if (steps_->done() || !rounds_.all_arrived()) return false;
  steps_->show();
  rounds_.publish(stamp_);
  steps_->meanwhile();
  shown_ = true;
  next_ = 0;
  return true;
}

bool SharedOperation::step() {
  if (done_ || !rounds_.is_next(ticket_)) return false;
  const bool moved = show();
  if (!shown_ && !steps_->done()) return false;
  if (shown_) {
    if (!arrived()) return moved;
    rounds_.fetch_next();
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
