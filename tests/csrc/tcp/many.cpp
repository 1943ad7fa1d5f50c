// More ranks than a machine can run processes: control planes of one thread, over socket pairs instead of connections.
#include <malloc.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "ranks.hpp"

namespace tests {
namespace {

using namespace syntony;
using State = PeerStatus::State;

/// As many as this process may open descriptors for, at most `wanted`.
std::uint32_t affordable(std::uint32_t wanted) {
  rlimit limit{};
  require(getrlimit(RLIMIT_NOFILE, &limit) == 0, "the limit");
  limit.rlim_cur = limit.rlim_max;
  require(setrlimit(RLIMIT_NOFILE, &limit) == 0, "as many as allowed");
  while (wanted > 17 && wanted * (TcpControl::neighbours(0, wanted, {}).size() + 1) + 100 > limit.rlim_cur) wanted /= 2;
  return wanted;
}

class Crowd {
 public:
  explicit Crowd(std::uint32_t ranks) : controls_(ranks) {
    std::vector<std::vector<TcpPeer>> peers(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      for (const std::uint32_t other : TcpControl::neighbours(rank, ranks, {})) {
        if (other < rank) continue;
        std::array<int, 2> ends{};
        require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0, "a socket pair");
        peers[rank].push_back({.rank = other, .endpoint = {}, .control = TcpStream(UniqueFd(ends[0])), .flows = {}});
        peers[other].push_back({.rank = rank, .endpoint = {}, .control = TcpStream(UniqueFd(ends[1])), .flows = {}});
      }
    }
    std::vector<std::uint32_t> everyone(ranks);
    std::iota(everyone.begin(), everyone.end(), 0U);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      std::vector<std::uint32_t> others = everyone;
      others.erase(others.begin() + rank);
      const GroupIdentity identity{.token = {1, 2}, .group = 7, .rank = rank, .ranks = ranks};
      controls_[rank] = std::make_unique<TcpControl>(identity, peers[rank], nullptr, others);
    }
  }

  [[nodiscard]] TcpControl& operator[](std::uint32_t rank) { return *controls_[rank]; }
  void kill(std::uint32_t rank) { controls_[rank].reset(); }

  /// Lets all live ranks work until `holds` is true for each.
  void until(const std::function<bool(TcpControl&)>& holds, std::string_view what) {
    const auto all = [&] {
      bool every = true;
      for (const std::unique_ptr<TcpControl>& control : controls_) {
        if (!control) continue;
        control->progress();
        every &= holds(*control);
      }
      return every;
    };
    eventually(all, what);
  }

 private:
  std::vector<std::unique_ptr<TcpControl>> controls_;
};

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// A death, an abort and what each rank has started reach all ranks.
void many_ranks(std::uint64_t) {
  const char* wanted = std::getenv("RANKS");
  const std::uint32_t ranks = affordable(wanted == nullptr ? 64 : static_cast<std::uint32_t>(std::atoi(wanted)));
  const std::size_t before = mallinfo2().uordblks;
  Crowd crowd(ranks);
  const std::size_t bytes = (mallinfo2().uordblks - before) / ranks;
  const std::uint32_t doomed = ranks / 3;
  const Clock::time_point killed = Clock::now();
  crowd.kill(doomed);
  crowd.until([&](TcpControl& control) { return control.status(doomed).state == State::dead; },
              "all hear of the death");
  const double death = milliseconds_since(killed);
  const Clock::time_point told = Clock::now();
  crowd[0].abort({Error::Kind::dead, {static_cast<int>(doomed)}, "rank died"});
  crowd.until([](TcpControl& control) { return control.aborted().has_value(); }, "all hear of the abort");
  const double abort = milliseconds_since(told);
  std::fprintf(stderr, "%u ranks, %zu neighbours, %zu bytes per rank (%.0f per peer): death %.1f ms, abort %.1f ms\n",
               ranks, TcpControl::neighbours(0, ranks, {}).size(), bytes, static_cast<double>(bytes) / ranks, death,
               abort);
  if (ranks > 600) return;
  const Clock::time_point asked = Clock::now();
  crowd[1].announce({.sequence = 1, .elements = 5});
  while (Clock::now() - asked < milliseconds(ranks)) crowd[1].progress();  // epochs are apart
  crowd[1].inquire();
  const auto knows_all = [&](TcpControl& control) {
    return std::ranges::all_of(control.peers(),
                               [&](std::uint32_t peer) { return peer == doomed || control.status(peer).known; });
  };
  const Clock::time_point inquired = Clock::now();
  crowd.until(knows_all, "all hear of all");
  std::fprintf(stderr, "all heard what all do after %.1f ms\n", milliseconds_since(inquired));
  require(crowd[0].announced(1, Priority::normal, 1)->elements == 5, "each by its rank");
}

constexpr std::array kManyTests{Test{"many_ranks", many_ranks}};

}  // namespace

std::span<const Test> many_tests() { return kManyTests; }

}  // namespace tests
