// congestion_window: how many packets may be in flight, on a simulated clock. Exit code 0 if everything passes.
#include "core/in_network/congestion_window.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "require.hpp"

namespace {

using namespace std::chrono_literals;
using syntony::CongestionWindow;

/// A worker whose sums arrive one millisecond apart.
class Worker {
 public:
  explicit Worker(std::size_t most) : window_(most) {}

  /// Delivers `count` sums; every `signs`-th has a sign of congestion, none for 0.
  void sums(std::size_t count, std::size_t signs = 0, std::optional<CongestionWindow::Duration> round_trip = 5ms) {
    for (std::size_t i = 1; i <= count; ++i) {
      now_ += 1ms;
      window_.came(now_, round_trip, signs > 0 && i % signs == 0);
    }
  }

  void collapses() { window_.collapsed(); }

  [[nodiscard]] std::size_t packets() const { return window_.packets(); }

 private:
  CongestionWindow window_;
  CongestionWindow::Time now_ = CongestionWindow::Time(1h);
};

void require_packets(const Worker& worker, std::size_t least, std::size_t most, const std::string& when) {
  const std::size_t found = worker.packets();
  require(found >= least && found <= most, when + " " + std::to_string(found) + " packets are under way, not " +
                                               std::to_string(least) + " to " + std::to_string(most));
}

void opens() {
  Worker worker(512);
  require_packets(worker, 8, 8, "at first");
  worker.sums(8);
  require_packets(worker, 16, 16, "after a round trip without signs");
  worker.sums(48);
  require_packets(worker, 64, 64, "after three");
  worker.sums(1000);
  require_packets(worker, 512, 512, "when nothing is in the way");
  Worker narrow(3);
  narrow.sums(100);
  require_packets(narrow, 3, 3, "where an aggregator has few slots");
}

void closes_for_marks() {
  Worker worker(512);
  worker.sums(512);
  require_packets(worker, 512, 512, "before any mark");
  worker.sums(512, 1);
  require_packets(worker, 256, 256, "when all of a window are marked");
  worker.sums(10'000, 1);
  require_packets(worker, 4, 4, "when all are marked for long");
  worker.sums(4 + 5 + 6);
  require_packets(worker, 7, 7, "after three round trips without a mark");
}

void is_cut_by_the_share() {
  Worker worker(512);
  worker.sums(512);
  worker.sums(20'000, 100);
  require_packets(worker, 128, 448, "when one in a hundred has a sign");
  Worker worse(512);
  worse.sums(512);
  worse.sums(20'000, 8);
  require_packets(worse, 4, 24, "when one in eight has");
  worse.sums(2000, 100);
  require_packets(worse, 25, 511, "when that is over");
}

void sees_queues() {
  Worker worker(512);
  worker.sums(8, 0, 2ms);
  worker.sums(100, 0, 11ms);
  require_packets(worker, 100, 512, "when hosts sleep for some milliseconds");
  worker.sums(5000, 0, 13ms);
  require_packets(worker, 4, 4, "when all are long under way");
  worker.sums(25'000, 0, 13ms);
  require_packets(worker, 100, 512, "when it is the route that has become longer");
  worker.sums(1000, 0, std::nullopt);
  require_packets(worker, 100, 512, "when nothing was measured");
}

void collapses() {
  Worker worker(512);
  worker.sums(120);
  require_packets(worker, 128, 128, "after four round trips");
  worker.collapses();
  require_packets(worker, 4, 4, "when all is lost");
  worker.sums(60);
  require_packets(worker, 64, 64, "when it has doubled up to half of what it was");
  worker.sums(64);
  require_packets(worker, 65, 65, "one round trip later");
}

}  // namespace

int main() {
  opens();
  closes_for_marks();
  is_cut_by_the_share();
  sees_queues();
  collapses();
  return 0;
}
