// yields: for how long a rank believes that other programs compute, by the yields that it makes. Exit code 0 if
// everything passes.
#include <chrono>
#include <string>

#include "core/process/others_load.hpp"
#include "require.hpp"

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// A rank that yields whenever it believes that only its peers use its CPU.
class Rank {
 public:
  /// One yield of `length`, at once or when others are not believed in any more; how long they are believed in after
  /// it.
  milliseconds yields(microseconds length) {
    while (load_.lasts(now_)) now_ += microseconds(10);
    const auto begin = now_;
    now_ += length;
    load_.yielded(begin, now_);
    milliseconds believed{};
    while (load_.lasts(now_ + believed)) ++believed;
    return believed;
  }
  void works(milliseconds time) { now_ += time; }

 private:
  syntony::OthersLoad load_;
  syntony::OthersLoad::Clock::time_point now_{std::chrono::hours(1)};
};

void expect(milliseconds believed, int wanted, const std::string& when) {
  require(believed == milliseconds(wanted), when + " others are believed in for " + std::to_string(believed.count()) +
                                                " ms, not " + std::to_string(wanted));
}

}  // namespace

int main() {
  Rank rank;
  expect(rank.yields(microseconds(5)), 0, "after a short yield");
  for (const int wanted : {1, 2, 4, 8, 16, 20, 20})
    expect(rank.yields(milliseconds(3)), wanted, "while others compute");
  expect(rank.yields(microseconds(5)), 0, "once they have ended");
  rank.works(milliseconds(30));
  expect(rank.yields(milliseconds(3)), 1, "when a peer has worked for long");
  rank.works(milliseconds(2));
  expect(rank.yields(milliseconds(3)), 1, "when a peer has done so again");
}
