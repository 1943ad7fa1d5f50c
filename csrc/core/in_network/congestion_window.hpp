// How many packets a worker may have in flight, found by trying:
//
//     packets          ╱│    ╱│            it doubles until the first sign of congestion, then grows by one per round
//             ╱│    ╱  │ ╱   │ ╱           trip, and is cut by half of the share of packets that had a sign
//           ╱  │ ╱     ╱     ╱
//         ╱
//
// Sums serve as acknowledgements. A sum has a sign of congestion if a switch has marked a packet of any of its parts
// (aggregators pass marks on), if it had to be asked for again, or if its packets were in flight for long, not counting
// how long its part waited for others' (the sum reports that). Marks, and sums as acknowledgements, are from PANAMA
// (Gebara et al., MLSys'21; known here from its abstract and from summaries, not from its text); the cut is DCTCP's
// (Alizadeh et al., SIGCOMM'10).
//
// Losses count by their share, too: one packet in a hundred lost on a bad wire at any of eight ranks leaves ten packets
// in flight, whereas halving at each would leave three.
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

  /// A sum has arrived: after `round_trip`, without the wait for others, if that was measured; `sign`: it was marked,
  /// or had to be asked for again.
  void came(Time now, std::optional<Duration> round_trip, bool sign);

  /// Everything that was in flight is lost.
  void collapsed();

 private:
  static constexpr std::size_t kLeast = 4;   // fewer would not fill four wires in sequence
  static constexpr double kGain = 1.0 / 16;  // DCTCP's g
  // Shorter queues are no sign: hosts that share their processors sleep for as long.
  static constexpr std::chrono::milliseconds kQueue{10};
  static constexpr std::chrono::seconds kMemory{10};  // routes change: the shortest round trip is forgotten after this

  [[nodiscard]] bool queued(Time now, Duration round_trip);

  std::size_t most_;
  double window_ = 8;
  double threshold_ = 1e9;       // below it the window doubles
  std::optional<double> share_;  // of sums with a sign, a moving average; none: no sign yet
  std::size_t sums_ = 0;         // in this window
  std::size_t signs_ = 0;
  Duration shortest_ = Duration::max();  // recent minimum of the round trip
  Duration next_shortest_ = Duration::max();
  Time since_;
};

}  // namespace syntony
