// Data sockets that take the place of lost ones, so that a network card which recovers is used again:
//
//      socket 1 of 2 is lost ──► 1 s ──► dial 3, from the same address to that of the same card ──► not reached
//                                              │                           ▲                              │
//                                              ▼                           └───────── 2, 4, 8 s ◄─────────┘
//                                        socket 3 carries what 1 did
//
// A socket is dialed by the rank that has dialed its predecessor, and accepted only by one that has lost that, too: so
// both agree on what has arrived over it (tcp_failover.cpp). A card that fails again and again is tried less often.
#include <algorithm>

#include "core/tcp/meeting/tcp_handshake.hpp"

namespace syntony {
namespace {

constexpr std::chrono::milliseconds kFirstWait{1000};
constexpr std::chrono::milliseconds kLongestWait{8000};
/// For an answer. The card may be another host's.
constexpr std::chrono::milliseconds kLongEnough{2000};

}  // namespace

std::vector<TcpMeeting::Vacancy>::iterator TcpMeeting::vacancy(Pair& pair, std::uint16_t number) {
  return std::ranges::find(pair.vacancies, number, &Vacancy::number);
}

void TcpMeeting::replace(std::uint32_t rank, std::uint16_t number, const TcpAddress& local) {
  Pair& pair = pair_of(rank);
  const auto flow = static_cast<std::uint16_t>(number % pair.flows);
  Vacancy fresh{.number = static_cast<std::uint16_t>(number + pair.flows), .from = local.at(0), .due = {}, .pause = {}};
  const auto before =
      std::ranges::find(pair.vacancies, flow, [&pair](const Vacancy& one) { return one.number % pair.flows; });
  if (before != pair.vacancies.end()) {  // its successor is lost before this rank has heard of it
    fresh.from = before->from;
    pair.vacancies.erase(before);
  }
  cancel_replacement(rank, flow);
  if (number >= kControlFlow - pair.flows) return;  // no number is left
  const int losses = std::min(number / pair.flows, 3);
  fresh.pause = std::min<Clock::duration>(kFirstWait * (1 << losses), kLongestWait);
  fresh.due = Clock::now() + fresh.pause;
  pair.vacancies.push_back(fresh);
}

/// What is being made, or has been and was not taken yet.
void TcpMeeting::cancel_replacement(std::uint32_t rank, std::uint16_t flow) {
  const Pair& pair = pair_of(rank);
  const auto meant = [&](const auto& one) {
    return one.rank == rank && pair.replaces(one.flow) && one.flow % pair.flows == flow;
  };
  for (Dial& dial : dials_) {
    if (!meant(dial)) continue;
    drop(dial.socket);
    dial.over = true;
  }
  std::erase_if(arrivals_, meant);
}

void TcpMeeting::dial_replacements() {
  const Clock::time_point now = Clock::now();
  for (auto& [rank, pair] : pairs_) {
    if (pair.link != Link::ours) continue;
    for (Vacancy& one : pair.vacancies) {
      if (now < one.due) continue;
      one.due = Clock::time_point::max();
      Dial& dial = plan_dial(rank, one.number, dialable(rank), now + kLongEnough, one.number % pair.flows);
      dial.candidates.resize(1);  // no other card
      dial.from = one.from;
      dial.called_back = true;
      attempt(dial);
    }
  }
}

/// It could not be made.
void TcpMeeting::postpone(Dial& dial) {
  drop(dial.socket);
  dial.over = true;
  Pair& pair = pair_of(dial.rank);
  const auto one = vacancy(pair, dial.flow);
  if (one == pair.vacancies.end()) return;
  one->pause = std::min<Clock::duration>(one->pause * 2, kLongestWait);
  one->due = Clock::now() + one->pause;
}

/// True if this rank waits for the guest's socket. Another may have come first, or the loss may not be known yet here:
/// then the guest tries again.
bool TcpMeeting::admits(Guest& guest) {
  Pair& pair = pair_of(guest.hello.from);
  if (pair.link == Link::theirs && vacancy(pair, guest.hello.flow) != pair.vacancies.end()) return true;
  drop(guest.socket);
  return false;
}

}  // namespace syntony
