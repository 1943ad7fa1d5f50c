#include "core/shared/shared_operation.hpp"

namespace syntony {

SharedOperation::SharedOperation(SharedExchange& exchange, const Descriptor& descriptor, std::span<const Block> blocks)
    : exchange_(exchange),
      stamp_{descriptor.sequence, descriptor.fingerprint},
      steps_(shared_steps(exchange, descriptor, blocks)),
      ticket_(done() ? 0 : exchange.enter()) {}

bool SharedOperation::arrived() {
  for (; next_ < exchange_.ranks(); ++next_) {
    if (next_ == exchange_.rank() || !steps_->needs(next_)) continue;
    if (!exchange_.arrived(next_)) return false;
  }
  return true;
}

bool SharedOperation::step() {
  if (done() || !exchange_.turn_of(ticket_)) return false;
  bool moved = false;
  if (!shown_) {
    if (!exchange_.all_arrived()) return false;
    steps_->show();
    exchange_.publish(stamp_);
    shown_ = moved = true;
    next_ = 0;
  }
  if (!arrived()) return moved;
  if (steps_->read()) shown_ = false;
  if (done()) exchange_.leave();
  return true;
}

std::vector<std::uint32_t> SharedOperation::waiting_for() const {
  std::vector<std::uint32_t> peers;
  for (std::uint32_t peer = 0; peer < exchange_.ranks(); ++peer) {
    const bool needed = !shown_ || steps_->needs(peer);
    if (needed && !exchange_.published(peer)) peers.push_back(peer);
  }
  return peers;
}

}  // namespace syntony
