#include "core/in_network/congestion_window.hpp"

namespace syntony {

void CongestionWindow::came(Time now, std::optional<Duration> round_trip, bool sign) {
  sign = (round_trip && queued(now, *round_trip)) || sign;
  ++sums_;
  if (sign) ++signs_;
  if (window_ < threshold_ && !sign) window_ = std::min(window_ + 1, static_cast<double>(most_));
  if (sign) threshold_ = std::min(threshold_, window_);
  if (sums_ < packets()) return;
  const double share = static_cast<double>(signs_) / static_cast<double>(sums_);
  if (share_) *share_ += kGain * (share - *share_);
  if (signs_ > 0) {
    if (!share_) share_ = share;
    window_ = std::max(static_cast<double>(kLeast), window_ * (1 - *share_ / 2));
    threshold_ = window_;
  } else if (window_ >= threshold_) {
    window_ = std::min(window_ + 1, static_cast<double>(most_));
  }
  sums_ = signs_ = 0;
}

void CongestionWindow::collapsed() {
  threshold_ = std::max(static_cast<double>(kLeast), window_ / 2);
  window_ = static_cast<double>(kLeast);
  sums_ = signs_ = 0;
}

bool CongestionWindow::queued(Time now, Duration round_trip) {
  if (now - since_ > kMemory) {
    shortest_ = next_shortest_;
    next_shortest_ = Duration::max();
    since_ = now;
  }
  shortest_ = std::min(shortest_, round_trip);
  next_shortest_ = std::min(next_shortest_, round_trip);
  return round_trip > shortest_ + std::max<Duration>(shortest_, kQueue);
}

}  // namespace syntony
