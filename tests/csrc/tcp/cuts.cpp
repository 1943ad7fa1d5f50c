// Control connections are cut while both ranks live: others take their places, and nothing said is lost.
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <vector>

#include "core/tcp/tcp_message.hpp"
#include "ranks.hpp"

namespace tests {
namespace {

using namespace syntony;
using State = PeerStatus::State;

/// Ranks post and ask while each cuts some of its connections, at random. Then one dies, and that is no cut.
void cut_among(std::uint32_t ranks, std::uint64_t seed) {
  run_ranks(ranks, [=](Rank& rank) {
    constexpr std::uint64_t kRounds = 8;
    std::mt19937_64 random(seed * 64 + rank.rank);
    const std::vector<std::uint32_t> others = rank.others();
    auto meeting = std::make_unique<TcpMeeting>(rank.publish(), TcpOptions{}, rank.identity(), rank.gathering.published,
                                                others, kPatience);
    std::vector<TcpPeer> peers = meeting->connect_control(TcpControl::neighbours(rank.rank, ranks, others));
    std::vector<UniqueFd> sockets;
    for (const TcpPeer& peer : peers) {
      if (random() % 2 == 0) sockets.emplace_back(fcntl(peer.control.get(), F_DUPFD_CLOEXEC, 0));
    }
    auto control = std::make_unique<TcpControl>(rank.identity(), peers, meeting.get(), others);
    const auto cut_one = [&] {
      if (sockets.empty() || random() % 4 != 0) return;
      ::shutdown(sockets.back().get(), SHUT_RDWR);
      sockets.pop_back();
    };
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      const auto text = [round](std::uint32_t of) { return std::to_string(round) + " of " + std::to_string(of); };
      control->announce({.sequence = round});
      control->post(round, text(rank.rank));
      const auto heard = [&](std::uint32_t peer) {
        return control->posted(peer, round) == text(peer) && control->announced(peer, Priority::normal, round);
      };
      const auto all = [&] {
        cut_one();
        control->progress();
        control->inquire();
        return std::ranges::all_of(others, heard);
      };
      eventually(all, "all hear of all");
      rank.gathering.settle([&] { control->progress(); });
    }
    const auto state = [&](std::uint32_t peer) { return control->status(peer).state; };
    for (const std::uint32_t peer : others) require(state(peer) == State::alive, control->end_of(peer));
    sockets.clear();
    rank.gathering.settle([&] { control->progress(); });
    if (rank.rank == ranks - 1) {
      control.reset();
      meeting.reset();
    } else {
      eventually([&] { return control->progress(), state(ranks - 1) == State::dead; }, "all hear of the death");
    }
    rank.gathering.settle([&] {
      if (control) control->progress();
    });
  });
}

void cut_control(std::uint64_t seed) { cut_among(3, seed); }
void cut_relays(std::uint64_t seed) { cut_among(18, seed); }

constexpr std::array kCutTests{Test{"cut_control", cut_control}, Test{"cut_relays", cut_relays}};

}  // namespace

std::span<const Test> cut_tests() { return kCutTests; }

}  // namespace tests
