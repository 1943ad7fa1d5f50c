// How many packets a worker may have under way, found by trying:
//
//      packets          ╱│    ╱│            it doubles until the first sign of congestion, then grows by one a round
//              ╱│    ╱  │ ╱   │ ╱           trip, and is cut by half of the share of packets that had a sign
//            ╱  │ ╱     ╱     ╱
//          ╱
//
// Sums are acknowledgements: there are no others. A sum has a sign of congestion when a switch has marked a packet of
// any of its parts (aggregators hand marks on), when it had to be asked for again, or when its packets were long under
// way, not counting how long its part waited for others' (the sum says so). The first, and sums as acknowledgements,
// are PANAMA's (Gebara et al., MLSys'21; known here from its abstract and from summaries, not from its text); the cut
// is DCTCP's (Alizadeh et al., SIGCOMM'10).
//
// Losses count by their share, too: one packet in a hundred, lost on a bad wire at any of eight ranks, leaves ten
// packets under way, where halving at each would leave three.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>

namespace syntony {

class CongestionWindow {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = Time::duration;

  /// Never more than `most` packets.
  explicit CongestionWindow(std::size_t most = 1) : most_(std::max<std::size_t>(1, most)) {}

  [[nodiscard]] std::size_t packets() const { return std::min(most_, static_cast<std::size_t>(window_)); }

  /// A sum has come now: after `round_trip`, without the wait for others, where that was measured; `sign`: it was
  /// marked, or had to be asked for again.
  void came(Time now, std::optional<Duration> round_trip, bool sign);

  /// Everything that was under way is lost.
  void collapsed();

 private:
  static constexpr std::size_t kLeast = 4;   // fewer would not fill four wires one after another
  static constexpr double kGain = 1.0 / 16;  // DCTCP's g
  // Shorter queues are no sign: hosts that share their processors sleep as long.
  static constexpr std::chrono::milliseconds kQueue{10};
  static constexpr std::chrono::seconds kMemory{10};  // routes change: what was the shortest is forgotten after that

  [[nodiscard]] bool queued(Time now, Duration round_trip);

  std::size_t most_;
  double window_ = 8;
  double threshold_ = 1e9;       // below it the window doubles
  std::optional<double> share_;  // of sums with a sign, a moving average; none: there was no sign yet
  std::size_t sums_ = 0;         // of this window
  std::size_t signs_ = 0;
  Duration shortest_ = Duration::max();  // round trip of late
  Duration next_shortest_ = Duration::max();
  Time since_;
};

}  // namespace syntony
