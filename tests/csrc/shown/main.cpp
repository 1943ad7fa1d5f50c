// shown: how ranks choose the way in which they write what peers read, and read it, and that all ways copy. Exit code 0
// if everything passes. Usage: shown SEED
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/kernels/vector_copy.hpp"
#include "core/shm/faster_way.hpp"
#include "core/shm/peer_reads.hpp"
#include "core/shm/shown_copy.hpp"
#include "require.hpp"

namespace {

using syntony::FasterWay;
using Way = FasterWay::Way;

/// Something that is done again and again in one of two ways, whose costs are known here.
class Job {
 public:
  explicit Job(double advantage) : ways_(advantage) {}

  /// How often each way was used in `turns` turns. Every `hiccup`-th timed turn is interrupted, none for 0.
  std::array<std::size_t, 2> run(std::size_t turns, std::array<double, 2> costs, std::size_t hiccup = 0) {
    std::array<std::size_t, 2> used{};
    for (std::size_t i = 0; i < turns; ++i) {
      const FasterWay::Turn turn = ways_.next();
      const auto way = static_cast<std::size_t>(turn.way);
      ++used[way];
      if (!turn.timed) continue;
      const bool interrupted = hiccup != 0 && ++timed_ % hiccup == 0;
      ways_.took(turn, interrupted ? 1000 * costs[way] : costs[way]);
    }
    return used;
  }

 private:
  FasterWay ways_;
  std::size_t timed_ = 0;
};

void prefers_the_faster() {
  for (const bool second : {false, true}) {
    Job job(1);
    job.run(100, second ? std::array{2.0, 1.0} : std::array{1.0, 2.0});
    const auto used = job.run(10'000, second ? std::array{2.0, 1.0} : std::array{1.0, 2.0});
    const std::size_t slower = used[second ? 0 : 1];
    require(slower >= 1 && slower <= 100, "the slower way is used " + std::to_string(slower) + " times of 10,000");
  }
}

void needs_an_advantage() {
  Job job(3);
  job.run(100, {2.0, 1.0});
  const auto used = job.run(1000, {2.0, 1.0});
  require(used[1] < 100, "twice as fast is not thrice as fast");
  Job other(3);
  other.run(100, {4.0, 1.0});
  require(other.run(1000, {4.0, 1.0})[0] < 100, "four times as fast is more than thrice");
}

void follows_changes() {
  Job job(3);
  job.run(10'000, {1.0, 2.0});
  job.run(100, {20.0, 2.0});
  require(job.run(1000, {20.0, 2.0})[0] < 100, "the first way has become slow, and is still used");
  job.run(3000, {1.0, 2.0});
  require(job.run(1000, {1.0, 2.0})[1] < 100, "the first way is fast again, and the second is still used");
}

void survives_interruptions() {
  Job job(1);
  job.run(100, {1.0, 2.0}, 7);
  const auto used = job.run(10'000, {1.0, 2.0}, 7);
  require(used[1] < 2000, "interruptions of a few turns decide: " + std::to_string(used[1]) + " of 10,000");
}

void copies(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  constexpr std::size_t kMost = 200'000;
  std::vector<std::byte> from(kMost + 64), to(kMost + 128);
  for (std::byte& byte : from) byte = static_cast<std::byte>(random());
  syntony::ShownCopy shown;
  syntony::PeerReads reads;
  for (int i = 0; i < 600; ++i) {
    const std::size_t most = std::size_t{1} << (random() % 18), bytes = random() % (most + 1);
    const std::size_t source = random() % 64, target = 1 + random() % 64;
    const std::string what = std::to_string(bytes) + " bytes from " + std::to_string(source) + " to " +
                             std::to_string(target) + ", seed " + std::to_string(seed);
    for (const int way : {0, 1, 2, 3, 4, 5}) {
      std::fill(to.begin(), to.end(), std::byte{0});
      std::byte* const begin = to.data() + target;
      if (way == 0) syntony::vector_copy(begin, from.data() + source, bytes);
      if (way == 1) syntony::streaming_copy(begin, from.data() + source, bytes);
      if (way == 2) shown(begin, from.data() + source, bytes);
      if (way == 3) syntony::paged_copy(begin, from.data() + source, bytes);
      if (way == 4) reads.copy(begin, from.data() + source, bytes);
      if (way == 5) syntony::paged_copy_to_peers(begin, from.data() + source, bytes);
      require(std::equal(begin, begin + bytes, from.data() + source), what + " are wrong");
      require(begin[-1] == std::byte{0} && begin[bytes] == std::byte{0}, what + " touch their neighbours");
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  require(count == 2, "usage: shown SEED");
  prefers_the_faster();
  needs_an_advantage();
  follows_changes();
  survives_interruptions();
  copies(std::stoull(arguments[1]));
}
