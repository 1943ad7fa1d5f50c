// core/one_host/shared_rounds.cpp: rounds in which every rank shows bytes and reads the others'.
#include "core/one_host/shared_rounds.hpp"

#include <array>

#include "model/host.hpp"
#include "model/scenario.hpp"

namespace syntony::model {
namespace {

struct Ranks : Host {
  explicit Ranks(std::uint32_t ranks) : Host(ranks, 1) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      rounds.emplace_back(segments[rank], transports[rank], rank, processes, Priority::normal, 1, ranks == 2);
    }
  }

  /// Like an operation of several rounds (one_host/shared_operation.cpp).
  template <typename Wait>
  void run(std::uint32_t rank, std::uint64_t count, Wait wait) {
    SharedRounds& own = rounds[rank];
    const auto all_arrived = [&] { return own.all_arrived(); };
    for (std::uint64_t round = 1; round <= count; ++round) {
      wait(all_arrived);
      put(own.next().inlined.data(), byte_of(rank, round));
      own.use_next(StagePart::pieces);
      put(own.stage(StagePart::pieces, rank, round).stage.data(), byte_of(rank, round));
      own.publish({.sequence = round, .fingerprint = 100 + round});
      transports[rank].wake();
      wait(all_arrived);
      for (std::uint32_t peer = 0; peer < own.ranks(); ++peer) {
        require(get(own.buffer(peer).inlined.data()) == byte_of(peer, round), "another round's byte is read");
        const StageBuffer& theirs = own.stage(StagePart::pieces, peer, round);
        require(get(theirs.stage.data()) == byte_of(peer, round), "another round's piece is read");
      }
    }
  }
  static std::uint8_t byte_of(std::uint32_t rank, std::uint64_t round) {
    return static_cast<std::uint8_t>(10 * rank + round);
  }

  std::deque<SharedRounds> rounds;
};

Begin polling(std::uint32_t ranks, std::uint64_t count) {
  return [=] {
    const auto all = std::make_shared<Ranks>(ranks);
    std::vector<std::function<void()>> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([=] { all->run(rank, count, [&](auto ready) { all->poll_until(ready); }); });
    }
    return threads;
  };
}

Begin sleeping(std::uint32_t ranks, std::uint64_t count) {
  return [=] {
    const auto all = std::make_shared<Ranks>(ranks);
    std::vector<std::function<void()>> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([=] { all->run(rank, count, [&](auto ready) { all->sleep_until(rank, ready); }); });
    }
    return threads;
  };
}

const std::array kAll{
    Scenario{"rounds: 2 ranks, 3 rounds, polling", polling(2, 3)},
    Scenario{"rounds: 3 ranks, 1 round, polling", polling(3, 1)},
    Scenario{"rounds: 2 ranks, 4 rounds, polling", polling(2, 4), true},
    Scenario{"rounds: 2 ranks, 1 round, asleep", sleeping(2, 1)},
    Scenario{"rounds: 2 ranks, 2 rounds, asleep", sleeping(2, 2), true},
};

}  // namespace

std::span<const Scenario> rounds() { return kAll; }

}  // namespace syntony::model
