// Control messages of large groups: each rank is connected with a few others, which pass on what it says.
#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "core/tcp/tcp_message.hpp"
#include "ranks.hpp"

namespace tests {
namespace {

using namespace syntony;
using State = PeerStatus::State;

/// Ranks in a circle, each connected with two: what one says reaches all, and when one dies the news takes the other
/// way round.
void relayed(std::uint64_t) {
  run_ranks(7, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect();
    rank.meet();
    std::erase_if(peers, [&](const TcpPeer& peer) {
      const std::uint32_t apart = (peer.rank + 7 - rank.rank) % 7;
      return apart != 1 && apart != 6;
    });
    const std::vector<std::uint32_t> others = rank.others();
    auto control = std::make_unique<TcpControl>(rank.identity(), peers, nullptr, others);
    require(std::ranges::equal(control->peers(), others), "tells of all");
    const auto each = [&](const auto& holds) {
      return std::ranges::all_of(others, [&](std::uint32_t peer) { return holds(peer); });
    };
    for (std::uint64_t sequence = 1; sequence <= 5; ++sequence) control->announce(operation(sequence, rank.rank));
    control->complete(Priority::normal, 4);
    rank.meet();
    if (rank.rank == 3) control->inquire();
    eventually([&] { return control->progress(), each([&](auto peer) { return control->status(peer).known; }); },
               "one asks, all hear of all");
    rank.gathering.settle([&] { control->progress(); });
    for (const std::uint32_t peer : others) {
      require(control->announced(peer, Priority::normal, 5)->root == peer, "each by its rank");
      require(control->announced(peer, Priority::normal, 4)->root == peer, "and the one before");
      require(!control->announced(peer, Priority::normal, 3), "no more");
      require(control->status(peer).completed[index_of(Priority::normal)] == 4, "completed");
    }
    const std::string text = "of " + std::to_string(rank.rank);
    control->post(post_number(1, 1), text);
    const auto told = [&](std::uint32_t peer) {
      return control->posted(peer, post_number(1, 1)) == "of " + std::to_string(peer);
    };
    eventually([&] { return control->progress(), each(told); }, "posts reach all");
    rank.gathering.settle([&] { control->progress(); });
    if (rank.rank == 5) {
      control.reset();  // dies
      rank.gathering.settle([] {});
      rank.gathering.settle([] {});
      return;
    }
    const auto state = [&](std::uint32_t peer) { return control->status(peer).state; };
    eventually([&] { return control->progress(), state(5) == State::dead; }, "all hear of the death");
    require_in("connection", control->end_of(5));
    rank.gathering.settle([&] { control->progress(); });
    if (rank.rank == 4) control->abort({Error::Kind::dead, {5}, "rank 5 died"});
    eventually([&] { return control->progress(), control->aborted().has_value(); }, "the long way round");
    require(control->aborted()->sentence == "rank 5 died", "word for word");
    require(each([&](auto peer) { return peer == 5 || state(peer) == State::alive; }), "nobody else");
    rank.gathering.settle([&] { control->progress(); });
    control->leave();
  });
}

/// A goodbye reaches ranks that are not neighbours, with what was completed.
void relayed_goodbye(std::uint64_t) {
  run_ranks(4, [](Rank& rank) {
    std::vector<TcpPeer> peers = rank.connect();
    rank.meet();
    std::erase_if(peers, [&](const TcpPeer& peer) { return peer.rank + 1 != rank.rank && rank.rank + 1 != peer.rank; });
    const std::vector<std::uint32_t> others = rank.others();
    TcpControl control(rank.identity(), peers, nullptr, others);
    if (rank.rank == 3) {
      control.complete(Priority::normal, 9);
      control.leave();
    } else {
      eventually([&] { return control.progress(), control.status(3).state == State::left; }, "all hear the goodbye");
      require(control.status(3).completed[index_of(Priority::normal)] == 9, "and what was completed");
      require(control.status(1 - rank.rank % 2).state == State::alive || rank.rank == 1, "the others stay");
    }
    rank.gathering.settle([&] { control.progress(); });
  });
}

/// All neighbours of a rank go, some with a goodbye, and also the next one behind them, which it could not learn of: it
/// and the others still hear from each other.
void neighbours_gone(std::uint64_t) {
  constexpr std::uint32_t kRanks = 18, kUnheard = 3;
  run_ranks(kRanks, [](Rank& rank) {
    const std::vector<std::uint32_t> gone = TcpControl::neighbours(0, kRanks, {}), others = rank.others();
    const auto near = TcpControl::neighbours(rank.rank, kRanks, {});
    auto meeting = std::make_unique<TcpMeeting>(rank.publish(), TcpOptions{}, rank.identity(), rank.gathering.published,
                                                others, kPatience);
    std::vector<TcpPeer> peers = meeting->connect_control(near);
    auto control = std::make_unique<TcpControl>(rank.identity(), peers, meeting.get(), others);
    const auto goes = [&](std::uint32_t peer) {
      return peer == kUnheard || std::ranges::find(gone, peer) != gone.end();
    };
    const auto state = [&](std::uint32_t peer) { return control->status(peer).state; };
    rank.meet();
    if (goes(rank.rank)) {
      if (rank.rank % 2 == 0) control->leave();
      control.reset();
      meeting.reset();
    } else {
      const auto known = [&](std::uint32_t peer) {
        const bool heard = rank.rank != 0 || peer != kUnheard;  // it learns of that one when it is connected again
        return !goes(peer) || !heard || state(peer) == (peer % 2 == 0 ? State::left : State::dead);
      };
      eventually([&] { return control->progress(), std::ranges::all_of(others, known); }, "who has gone");
    }
    rank.gathering.settle([&] {
      if (control) control->progress();
    });
    if (control) {
      const std::string text = "of " + std::to_string(rank.rank);
      control->announce(operation(1, rank.rank));
      control->post(post_number(1, 1), text);
      const auto heard = [&](std::uint32_t peer) {
        return goes(peer) ? state(peer) == (peer % 2 == 0 ? State::left : State::dead)
                          : control->posted(peer, post_number(1, 1)) == "of " + std::to_string(peer) &&
                                control->status(peer).known;
      };
      const auto all = [&] {
        control->progress();
        control->inquire();
        return std::ranges::all_of(others, heard);
      };
      eventually(all, "all hear of all");
    }
    rank.gathering.settle([&] {
      if (control) control->progress();
    });
  });
}

/// Rank 0 knows no address at which rank 3 can be dialed, and has no connection to it: others pass on that it asks to
/// be dialed.
void relayed_call(std::uint64_t) {
  constexpr std::uint32_t kRanks = 18, kUndialable = 3;
  constexpr std::array<std::byte, 3> kText{std::byte{'a'}, std::byte{'b'}, std::byte{'c'}};
  run_ranks(kRanks, [&](Rank& rank) {
    TcpListener listener = rank.publish();
    const std::vector<std::uint32_t> others = rank.others(), near = TcpControl::neighbours(rank.rank, kRanks, {});
    std::vector<std::string> published = rank.gathering.published;
    if (rank.rank == 0) {
      require(std::ranges::find(near, kUndialable) == near.end(), "no neighbour");
      TcpEndpoints wrong = TcpEndpoints::parse(published[kUndialable]);
      wrong.addresses = {*TcpAddress::parse("127.0.0.1:1")};
      published[kUndialable] = wrong.text();
    }
    TcpMeeting meeting(std::move(listener), TcpOptions{}, rank.identity(), published, others, kPatience);
    std::vector<TcpPeer> peers = meeting.connect_control(near);
    TcpControl control(rank.identity(), peers, &meeting, others);
    TcpTransport transport({.ranks = kRanks}, rank.identity(), peers, &meeting, others);
    const auto work = [&] {
      control.progress();
      transport.progress();
    };
    if (rank.rank == 0) {
      Sender& sender = transport.sender(kUndialable, 0, 0);
      require(sender.send(rank.header(0, kText.size()), kText.data()), "room for a frame");
      eventually([&] { return work(), sender.on_their_way() == 0; }, "the frame is released");
    } else if (rank.rank == kUndialable) {
      Receiver& receiver = transport.receiver(0, 0, 0);
      eventually([&] { return work(), receiver.front() != nullptr; }, "the frame arrives");
      require(std::ranges::equal(std::span(receiver.payload(), receiver.front()->length), kText), "what was sent");
      receiver.release();
    }
    rank.gathering.settle(work);
  });
}

/// In a large group each rank has few neighbours, all distances are short, and losing some isolates nobody.
void circulant(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (const std::uint32_t ranks : {17U, 18U, 31U, 32U, 64U, 100U, 129U, 512U, 1000U}) {
    std::vector<std::vector<std::uint32_t>> of(ranks);
    std::uint32_t digits = 0;
    while (ranks > (1U << digits)) ++digits;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      of[rank] = TcpControl::neighbours(rank, ranks, {});
      require(of[rank].size() <= 2 * digits, "few");
      for (const std::uint32_t other : of[rank]) {
        require(other != rank && other < ranks, "another");
        require(std::ranges::count(TcpControl::neighbours(other, ranks, {}), rank) == 1, "it says so, too");
      }
    }
    for (int turn = 0; turn < 20; ++turn) {
      std::vector<bool> gone(ranks, false);
      for (std::uint32_t lost = 0; lost < digits; ++lost) gone[random() % ranks] = true;
      std::vector<std::uint32_t> reached;
      for (std::uint32_t rank = 0; reached.empty(); ++rank) {
        if (!gone[rank]) reached.push_back(rank);
      }
      std::vector<bool> seen = gone;
      seen[reached.front()] = true;
      for (std::size_t next = 0; next < reached.size(); ++next) {
        for (const std::uint32_t other : of[reached[next]]) {
          if (seen[other]) continue;
          seen[other] = true;
          reached.push_back(other);
        }
      }
      require(std::ranges::all_of(seen, [](bool one) { return one; }), "nobody is cut off");
    }
  }
}

constexpr std::array kRelayTests{Test{"relayed", relayed}, Test{"relayed_goodbye", relayed_goodbye},
                                 Test{"neighbours_gone", neighbours_gone}, Test{"relayed_call", relayed_call},
                                 Test{"circulant", circulant}};

}  // namespace

std::span<const Test> relay_tests() { return kRelayTests; }

}  // namespace tests
