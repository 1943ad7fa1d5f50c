#include "core/one_host/shared_operation.hpp"

#include "core/one_host/shared_way.hpp"

namespace syntony {
namespace {

std::unique_ptr<SharedSteps> steps_of(SharedWay way, const SharedJob& job) {
  return way == SharedWay::reference ? reference_steps(job) : staged_steps(job);
}

}  // namespace

SharedOperation::SharedOperation(SharedRounds& rounds, const Descriptor& descriptor, const Call& call)
    : rounds_(rounds),
      job_{.rounds = rounds, .call = call},
      stamp_{descriptor.sequence, descriptor.fingerprint},
      ticket_(rounds.enter()) {}

void SharedOperation::begin() {
  const bool readable = rounds_.memory().open_to_all.value_or(true);
  agreed_ = rounds_.ways().of(job_.call.collective, job_.call.dtype, job_.ranks, job_.longest_bytes, readable);
  const SharedChoice choice = agreed_ != nullptr
                                  ? agreed_->next()
                                  : usual_choice(job_.call.collective, job_.ranks, job_.longest_bytes, readable);
  if (agreed_ == nullptr) rounds_.ways().begins_unmeasured();
  job_.streams = choice.streams;
  steps_ = steps_of(choice.way, job_);
}

bool SharedOperation::met() {
  if (agreed_ == nullptr || met_) return true;
  if (!rounds_.all_arrived()) return false;
  met_ = Clock::now();
  rounds_.ways().begins(*met_ - showing_);
  agreed_->forget();
  for (std::uint32_t rank = 0; rank < rounds_.ranks(); ++rank) agreed_->hear(rounds_.buffer(rank).costs);
  return true;
}

bool SharedOperation::arrived() {
  for (; next_ < rounds_.ranks(); ++next_) {
    if (next_ == rounds_.rank() || !steps_->needs(next_)) continue;
    if (!rounds_.arrived(next_)) return false;
  }
  return true;
}

bool SharedOperation::show() {
  if (shown_ || done_ || !rounds_.is_next(ticket_)) return false;
  if (!steps_) begin();
  if (steps_->done() || !rounds_.all_arrived()) return false;
  const bool timed = agreed_ != nullptr && !met_;
  const Clock::time_point before = timed ? Clock::now() : Clock::time_point();
  steps_->show();
  if (timed) rounds_.next().costs = agreed_->costs();
  rounds_.publish(stamp_);
  steps_->meanwhile();
  if (timed) showing_ = Clock::now() - before;
  shown_ = true;
  next_ = 0;
  return true;
}

bool SharedOperation::step() {
  if (done_ || !rounds_.is_next(ticket_)) return false;
  const bool moved = show();
  if (!shown_ && !steps_->done()) return false;
  if (shown_) {
    if (!arrived() || !met()) return moved;
    rounds_.fetch_next();
    if (steps_->read()) shown_ = false;
  }
  done_ = !shown_ && steps_->done();
  if (done_) {
    if (agreed_ != nullptr) {
      const Clock::time_point now = Clock::now();
      rounds_.ways().ends(*agreed_, showing_ + (now - *met_), job_.longest_bytes, now);
    }
    rounds_.leave();
  }
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
