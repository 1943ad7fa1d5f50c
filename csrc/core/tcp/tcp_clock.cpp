// A common time axis for ranks on several hosts: the offset of this rank's clock from that of the group's rank 0.
//
//     a rank                  a lower neighbour        asked a few times; in the fastest exchange, the neighbour
//       t0 ── ask_time ──────► |                       read its clock midway between question and answer:
//       t1 ◄── time ────────── |                       offset = theirs + their offset - (t0 + t1) / 2,
//                                                      wrong by (t1 - t0) / 2 at most
//
// A rank asks its lowest neighbour, which answers once it knows its own offset. So the ranks form a tree below rank 0,
// whose depth is at most the number of binary digits of n, and the errors along a path add up. A neighbour on the same
// host has the same clock, and so the same offset. Nobody waits for it: questions are asked when the group has formed,
// and answered like any other message.
#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "core/recorder/recorder.hpp"
#include "core/tcp/tcp_control.hpp"

namespace syntony {
namespace {

constexpr int kQuestions = 8;

/// The body of `time`, in nanoseconds of the clocks of who asks and who answers.
struct TimeAnswer {
  std::int64_t asked = 0;
  std::int64_t now = 0;
  std::int64_t offset = 0;  // of the clock that says `now`
};

/// They come from elsewhere, so the sum may be anything.
std::int64_t sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

}  // namespace

void TcpControl::compare_clocks() {
  if (remote_.contains(0)) {
    ask_time();
  } else {  // this is rank 0, or its host
    know_time();
  }
}

void TcpControl::ask_time() {
  const auto order = [&](const Edge& edge) {
    const bool no = !edge.socket || edge.rank > identity_.rank;
    return std::tuple(no, remote_.contains(edge.rank), edge.rank);
  };
  const auto best = std::ranges::min_element(edges_, {}, order);
  if (best == edges_.end() || std::get<0>(order(*best))) return;
  time_.from = best->rank;
  time_.asked = nanoseconds_now();
  send(*best, Kind::ask_time, identity_.rank, std::as_bytes(std::span(&time_.asked, 1)));
}

void TcpControl::tell_time(Edge& edge) {
  const TimeAnswer answer{
      .asked = *edge.time_asked, .now = nanoseconds_now(), .offset = time_.offset->load(std::memory_order_relaxed)};
  edge.time_asked.reset();
  send(edge, Kind::time, identity_.rank, std::as_bytes(std::span(&answer, 1)));
}

void TcpControl::know_time() {
  time_.known = true;
  time_.from.reset();
  for (Edge& edge : edges_) {
    if (edge.time_asked) tell_time(edge);
  }
}

bool TcpControl::take_time_question(Edge& edge, std::span<const std::byte> body) {
  std::int64_t asked = 0;
  if (body.size() != sizeof(asked)) return false;
  std::memcpy(&asked, body.data(), sizeof(asked));
  edge.time_asked = asked;
  if (time_.known && has_room(edge)) tell_time(edge);
  return true;
}

bool TcpControl::take_time(const Edge& edge, std::span<const std::byte> body) {
  TimeAnswer answer;
  if (body.size() != sizeof(answer)) return false;
  std::memcpy(&answer, body.data(), sizeof(answer));
  if (time_.from != edge.rank || answer.asked != time_.asked) return true;
  const std::int64_t took = nanoseconds_now() - time_.asked;
  const bool other_clock = remote_.contains(edge.rank);
  if (took < time_.soonest) {
    time_.soonest = took;
    const std::int64_t midway = time_.asked + took / 2;
    time_.offset->store(other_clock ? sum(sum(answer.now, answer.offset), -midway) : answer.offset,
                        std::memory_order_relaxed);
  }
  if (other_clock && ++time_.answers < kQuestions) {
    ask_time();
  } else {
    know_time();
  }
  return true;
}

}  // namespace syntony
