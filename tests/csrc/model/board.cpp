// core/shm/shm_board.cpp: what a rank announces, why a group ended, what is posted.
#include "core/shm/shm_board.hpp"

#include <array>

#include "model/host.hpp"
#include "model/scenario.hpp"

namespace syntony::model {
namespace {

struct Boards : Host {
  explicit Boards(std::uint32_t ranks) : Host(ranks, 1) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) boards.emplace_back(segments[rank], rank, processes);
  }
  std::deque<ShmBoard> boards;
};

/// Both halves tell the number.
Descriptor operation(std::uint64_t number) {
  return {.sequence = number, .ordinal = number, .program = 1000 + number, .root = static_cast<std::uint32_t>(number)};
}
bool whole(const Descriptor& descriptor) {
  return descriptor.program == 1000 + descriptor.sequence && descriptor.root == descriptor.sequence;
}

void announce(Boards& all, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t number = first; number <= last; ++number) {
    all.boards[0].announce(operation(number));
    all.boards[0].complete(Priority::normal, number);
  }
}

/// The entry that a reader copies is overwritten meanwhile, after kRememberedOperations.
Begin overwritten(std::function<void(Boards&)> reader) {
  return [=]() -> std::vector<std::function<void()>> {
    const auto all = std::make_shared<Boards>(2);
    constexpr std::uint64_t kLast = kRememberedOperations - 1;  // that leaves an entry free
    for (std::uint64_t number = 1; number <= kLast; ++number) all->boards[0].announce(operation(number));
    return {[=] {
              for (const std::uint64_t more : {1, 2, 3}) all->boards[0].announce(operation(kLast + more));
            },
            [=] { reader(*all); }};
  };
}

void ask_for_one(Boards& all) {
  const auto found = all.boards[1].announced(0, Priority::normal, 1);
  require(!found || (found->sequence == 1 && whole(*found)), "another operation is told than was asked for");
}

void ask_for_status(Boards& all) {
  const PeerStatus status = all.boards[1].status(0);
  const Descriptor& started = status.started[index_of(Priority::normal)];
  require(started.sequence == 0 || whole(started), "parts of two operations are told as one");
}

/// A rank that has completed an operation has started it.
Begin completes() {
  return [=]() -> std::vector<std::function<void()>> {
    const auto all = std::make_shared<Boards>(2);
    return {[=] { announce(*all, 1, 2); },
            [=] {
              const PeerStatus status = all->boards[1].status(0);
              const std::size_t i = index_of(Priority::normal);
              require(status.started[i].sequence >= status.completed[i], "an operation is complete that never began");
            }};
  };
}

/// Two ranks end the group, a third learns why: it must see one complete reason.
Begin aborts() {
  return [=]() -> std::vector<std::function<void()>> {
    const auto all = std::make_shared<Boards>(3);
    const auto abort = [=](std::uint32_t rank) {
      const int guilty = static_cast<int>(rank) + 7;
      all->boards[rank].abort({Error::Kind::dead, {guilty}, "rank " + std::to_string(guilty)});
    };
    return {[=] { abort(0); }, [=] { abort(1); },
            [=] {
              std::optional<Abort> heard;
              all->poll_until([&] { return (heard = all->boards[2].aborted()).has_value(); });
              require(heard->ranks.size() == 1 && heard->sentence == "rank " + std::to_string(heard->ranks[0]),
                      "the reasons of two ranks are told as one");
            }};
  };
}

/// A message is overwritten by another one in its slot while a peer reads it.
Begin posts() {
  return [=]() -> std::vector<std::function<void()>> {
    const auto all = std::make_shared<Boards>(2);
    constexpr std::uint64_t kFirst = post_number(1, 0);
    constexpr std::uint64_t kSecond = post_number(3, 0);
    static_assert(post_slot(kFirst) == post_slot(kSecond));
    return {[=] {
              all->boards[0].post(kFirst, "first");
              all->boards[0].post(kSecond, "the second");
            },
            [=] {
              for (const auto& [number, text] : {std::pair(kFirst, "first"), std::pair(kSecond, "the second")}) {
                const auto found = all->boards[1].posted(0, number);
                require(!found || *found == text, "parts of two messages are told as one");
              }
            }};
  };
}

/// What a rank posted before it left is there once it is seen to have left.
Begin leaves() {
  return [=]() -> std::vector<std::function<void()>> {
    const auto all = std::make_shared<Boards>(2);
    constexpr std::uint64_t kNumber = post_number(1, 0);
    return {[=] {
              all->boards[0].post(kNumber, "goodbye");
              all->boards[0].leave();
            },
            [=] {
              const bool left = all->boards[1].status(0).state == PeerStatus::State::left;
              const auto found = all->boards[1].posted(0, kNumber);
              require(!left || found == "goodbye", "what was posted by a rank that left is lost");
            }};
  };
}

/// A rank that is rung because of an abort learns of it: the ring itself orders nothing.
Begin heard() {
  return [=]() -> std::vector<std::function<void()>> {
    const auto all = std::make_shared<Boards>(2);
    return {[=] { all->boards[0].abort({Error::Kind::dead, {7}, "rank 7"}); },
            [=] { all->poll_until([&] { return all->boards[1].aborted().has_value(); }); }};
  };
}

const std::array kAll{
    Scenario{"board: one that is overwritten, asked for", overwritten(ask_for_one)},
    Scenario{"board: one that is overwritten, status", overwritten(ask_for_status)},
    Scenario{"board: completed", completes()},
    Scenario{"board: two abort", aborts()},
    Scenario{"board: posts", posts()},
    Scenario{"board: leaves", leaves()},
    Scenario{"board: an abort is heard", heard()},
};

}  // namespace

std::span<const Scenario> board() { return kAll; }

}  // namespace syntony::model
