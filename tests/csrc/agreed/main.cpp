// agreed: how the ranks of a host come to take the same way, and the fastest. Exit code 0 if everything passes.
// Usage: agreed SEED
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/one_host/agreed_way.hpp"
#include "core/one_host/shared_way.hpp"
#include "require.hpp"

namespace {

using syntony::AgreedWay;
using syntony::AgreedWays;
using syntony::Collective;
using syntony::DType;
using syntony::SharedChoice;
using syntony::SharedWay;

constexpr std::array<SharedChoice, 4> kChoices{{{SharedWay::exchange, false},
                                                {SharedWay::exchange, true},
                                                {SharedWay::reference, false},
                                                {SharedWay::reference, true}}};
using Costs = std::array<double, 4>;  // ns per byte, of each choice
constexpr std::size_t kBytes = 1 << 20;

/// Ranks that make the same calls, whose costs are known here.
class Ranks {
 public:
  Ranks(std::size_t ranks, std::uint64_t seed, std::uint64_t doubt = AgreedWay::kNone)
      : ways_(ranks, AgreedWay({kChoices.begin(), kChoices.end()}, doubt)), random_(seed) {}

  /// How often each choice was taken in `calls` calls. A call in `late` is interrupted, on one rank; none for 0. The
  /// next call begins `rests` after the end of one, in ns per byte. The first two calls of a way after another one take
  /// `colder` times as long.
  std::array<std::size_t, 4> run(std::size_t calls, const std::vector<Costs>& of_ranks, std::uint64_t late = 0,
                                 const Costs& rests = {}, double colder = 1) {
    std::array<std::size_t, 4> taken{};
    std::size_t before = 0, in_a_row = 0;
    std::vector<double> before_bytes(ways_.size());
    for (std::size_t call = 0; call < calls; ++call) {
      const SharedChoice choice = ways_.front().next();
      for (std::size_t rank = 1; rank < ways_.size(); ++rank) {
        require(ways_[rank].next() == choice, "ranks take different ways");
      }
      const auto index = static_cast<std::size_t>(std::ranges::find(kChoices, choice) - kChoices.begin());
      ++taken[index];
      in_a_row = index == before ? in_a_row + 1 : 1;
      const double warmth = in_a_row <= 2 ? colder : 1;
      std::vector<syntony::StageBuffer::Costs> shown;
      for (const AgreedWay& way : ways_) shown.push_back(way.costs());
      const std::uint64_t victim = late == 0 ? ways_.size() : random_() % (late * ways_.size());
      for (std::size_t rank = 0; rank < ways_.size(); ++rank) {
        ways_[rank].forget();
        for (const auto& costs : shown) ways_[rank].hear(costs);
        const std::size_t bytes = kBytes / 2 + random_() % (kBytes / 2);
        const double noise = 1 + static_cast<double>(random_() % 1000) / 10'000;
        if (call > 0 && rests[before] > 0) ways_[rank].resumed(nanoseconds(rests[before] * before_bytes[rank]));
        before_bytes[rank] = static_cast<double>(bytes);
        const double spent = of_ranks[rank % of_ranks.size()][index] * warmth * static_cast<double>(bytes) * noise;
        ways_[rank].took(nanoseconds(rank == victim ? 100 * spent : spent), bytes);
      }
      before = index;
    }
    return taken;
  }

 private:
  static std::chrono::nanoseconds nanoseconds(double time) {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(time));
  }

  std::vector<AgreedWay> ways_;
  std::mt19937_64 random_;
};

void finds_the_fastest(std::uint64_t seed) {
  for (std::size_t best = 0; best < 4; ++best) {
    Costs costs{1.7, 1.7, 1.7, 1.7}, near{1.5, 1.5, 1.5, 1.5};
    costs[best] = near[best] = 1;
    Ranks ranks(3, seed), of_near(3, seed);
    const auto first = ranks.run(30, {costs});
    require(first[best] >= 16, "of the first 30 calls " + std::to_string(first[best]) + " take the fastest way");
    require(of_near.run(60, {near})[best] >= 40, "of the first 60 calls too few take the fastest way");
    const auto later = ranks.run(10'000, {costs});
    require(later[best] >= 9'900, "of 10,000 calls " + std::to_string(later[best]) + " take the fastest way");
    for (const std::size_t count : later) require(count > 10, "a way is not tried any more");
  }
}

// A way's first calls find in the caches what another way has left there.
void sees_beyond_first_calls(std::uint64_t seed) {
  Ranks ranks(2, seed);
  const Costs costs{1, 1.3, 0.75, 1.3};
  ranks.run(30, {costs}, 0, {}, 1.6);
  const auto taken = ranks.run(100, {costs}, 0, {}, 1.6);
  require(taken[2] > 80, "a way that is fast from its third call on is taken " + std::to_string(taken[2]) + " times");
}

void serves_all_ranks(std::uint64_t seed) {
  Ranks ranks(2, seed);  // what is best for one is bad for the other, which loses more
  const auto taken = ranks.run(1000, {{1, 2, 2, 2}, {4, 2, 3, 3}});
  require(taken[1] > 900, "the way with the least sum is taken " + std::to_string(taken[1]) + " times of 1,000");
}

void follows_changes(std::uint64_t seed) {
  Ranks ranks(2, seed);
  ranks.run(1000, {{1, 2, 2, 2}});
  ranks.run(100, {{3, 2, 2, 1}});
  require(ranks.run(1000, {{3, 2, 2, 1}})[0] < 100, "a way that has become slow is still taken");
  ranks.run(4000, {{3, 2, 2, 1}});
  require(ranks.run(1000, {{3, 2, 2, 1}})[3] > 900, "the way that has become fast is not taken");
}

// Other programs leave a cache that the ranks share: what then is the fastest was by far the slowest.
void reviews_what_it_knew(std::uint64_t seed) {
  const Costs before{1, 1.3, 1.3, 3}, after{0.8, 1.3, 1.3, 0.5};
  Ranks ranks(2, seed);
  require(ranks.run(200, {before})[0] > 140, "the fastest way is not taken");
  ranks.run(70, {after});
  require(ranks.run(100, {after})[3] > 90, "the way that has become the fastest is not found");
  ranks.run(100, {before});
  require(ranks.run(100, {before})[0] > 80, "the way that is the fastest again is not found");
}

// Peers' reading of an input makes it slow to write: the next call begins later.
void counts_what_follows(std::uint64_t seed) {
  Ranks ranks(2, seed), resting(2, seed);
  ranks.run(50, {{1, 1.2, 1.5, 1.5}}, 0, {1, 0.3, 1, 1});
  const auto taken = ranks.run(1000, {{1, 1.2, 1.5, 1.5}}, 0, {1, 0.3, 1, 1});
  require(taken[1] > 900, "the way after which others wait least is taken " + std::to_string(taken[1]) + " times");
  resting.run(50, {{1, 1.4, 1.5, 1.5}}, 0, {50, 5, 50, 50});
  require(resting.run(1000, {{1, 1.4, 1.5, 1.5}}, 0, {50, 5, 50, 50})[0] > 900, "long rests decide");
}

// Where another way is doubted, the usual one is left for a clear gain, and taken again for any.
void doubts_other_ways(std::uint64_t seed) {
  Ranks ranks(2, seed, 4);
  ranks.run(50, {{1, 1, 0.84, 1}});
  require(ranks.run(1000, {{1, 1, 0.84, 1}})[0] > 900, "a small gain decides");
  ranks.run(100, {{1, 1, 0.6, 1}});
  require(ranks.run(1000, {{1, 1, 0.6, 1}})[2] > 900, "a large gain does not");
  ranks.run(200, {{1, 1.5, 1.15, 1.5}});
  require(ranks.run(1000, {{1, 1.5, 1.15, 1.5}})[0] > 900, "the usual way is not taken again");
}

void survives_interruptions(std::uint64_t seed) {
  Ranks ranks(4, seed);
  ranks.run(200, {{2, 1, 2, 2}}, 10);
  const auto taken = ranks.run(5000, {{2, 1, 2, 2}}, 10);
  require(taken[1] > 4500, "single late calls decide: " + std::to_string(taken[1]) + " of 5,000");
}

// The first calls find memory that the system has still to provide, and single calls are late.
void forgives_first_calls(std::uint64_t seed) {
  std::size_t right = 0;
  for (std::uint64_t run = 0; run < 20; ++run) {
    Ranks ranks(2, seed + run);
    ranks.run(4, {{3, 2, 2, 2}});
    ranks.run(30, {{1, 1.15, 1.2, 1.5}}, 4);
    const auto taken = ranks.run(100, {{1, 1.15, 1.2, 1.5}}, 4);
    right += taken[0] > 80 ? 1 : 0;
  }
  require(right >= 17, "after slow first calls, the fastest way is found in " + std::to_string(right) + " of 20 runs");
}

void chooses_among_few() {
  AgreedWays ways;
  require(ways.of(Collective::all_gather, DType::float32, 2, 4096, true) == nullptr, "short blocks are measured");
  require(ways.of(Collective::broadcast, DType::float32, 2, 1 << 24, true) == nullptr,
          "ranks that wait for the root only cannot agree");
  AgreedWay* const long_ones = ways.of(Collective::all_gather, DType::float32, 2, 1 << 24, true);
  require(long_ones != nullptr, "nothing is measured");
  require(ways.of(Collective::all_gather, DType::float32, 2, (1 << 24) + 4, true) == long_ones, "sizes are not alike");
  require(ways.of(Collective::all_gather, DType::float32, 2, 1 << 24, false) != long_ones, "peers cannot be read");
  require(ways.of(Collective::all_reduce, DType::float32, 2, 1 << 18, true) == nullptr,
          "sums of short blocks are tried");
  for (const auto collective : {Collective::all_reduce, Collective::all_gather, Collective::all_to_all}) {
    for (const std::uint32_t ranks : {2U, 3U, 8U}) {
      for (std::size_t bytes = 1 << 16; bytes <= 1 << 28; bytes *= 2) {
        const auto all = syntony::shared_choices(collective, ranks, bytes, true);
        require(all.size() <= syntony::StageBuffer::kCosts, "more choices than costs that can be shown");
        for (const SharedChoice& choice : syntony::shared_choices(collective, ranks, bytes, false)) {
          require(choice.way != SharedWay::reference, "memory is read that cannot be");
        }
      }
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  require(count == 2, "usage: agreed SEED");
  const std::uint64_t seed = std::stoull(arguments[1]);
  finds_the_fastest(seed);
  sees_beyond_first_calls(seed);
  serves_all_ranks(seed);
  follows_changes(seed);
  reviews_what_it_knew(seed);
  counts_what_follows(seed);
  doubts_other_ways(seed);
  survives_interruptions(seed);
  forgives_first_calls(seed);
  chooses_among_few();
}
