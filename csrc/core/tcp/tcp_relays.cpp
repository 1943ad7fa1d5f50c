// The control plane if ranks relay: each rank's status reaches all in few messages, however many ranks there are.
//
//     inquire                statuses
//     0 ---> 1 ---> 3        0 <=== 1 <=== 3       An epoch's inquiry goes along all connections. A rank answers the
//     |      |      |        ^                     one from which it hears it first, so the ranks that have answered
//     v      v      v        v                     form a tree. Along its edges, in both directions, every rank passes
//     2 ---> 4 ---> 5        2 <=== 4    5 ..      on once what is new to it, and everything that it has heard since
//                                                  the last time in one message.
//
// A stopped rank does not pass inquiries on, so no rank is below it in the tree; if one stops afterwards, the next
// epoch's tree goes round it. Most ranks report exactly the same: a status is sent with the set of ranks that report
// it. So an epoch costs a rank one message per neighbour and a few more, of some hundred bytes, instead of the n that
// it would take if each rank's status were sent separately.
//
// Operations that start meanwhile are reported in the next epoch: ranks that wait for them ask again.
//
// If several ranks begin an epoch at the same time, the greatest epoch number counts; its lowest digits are the rank
// that has asked.
//
// When neighbours go, the remaining ranks close the gap, as soon as one of them has something to say:
//
//     0 -- 1 -- 2 -- 3 -- 4       0            3 -- 4      the next one in the circle that is alive is a neighbour, or
//       \_______|              ==>  \__________/            is dialed; it is told what it may have missed, and closes
//                                                          the gap in its turn
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/process/log.hpp"
#include "core/tcp/tcp_control.hpp"

namespace syntony {
namespace {

/// Every rank answers in an epoch, so with many ranks epochs are rare. The lowest waiting rank begins, and ranks that
/// hear of it before their turn do not, so that there is usually one tree at a time.
constexpr std::chrono::microseconds kEpochPerRank{500};
/// Where machines are so busy that answers take long, ranks ask up to this much less often: most of the time is for
/// what they wait for.
constexpr int kLessOften = 4;
constexpr unsigned kRankDigits = 20;     // of an epoch
constexpr unsigned kVersionDigits = 20;  // of statuses in an epoch: equal statuses have equal versions

template <typename Value>
void put(std::vector<std::byte>& bytes, const Value* values, std::size_t count) {
  const auto* const begin = reinterpret_cast<const std::byte*>(values);
  bytes.insert(bytes.end(), begin, begin + count * sizeof(Value));
}

template <typename Value>
bool take_from(std::span<const std::byte>& bytes, Value& value) {
  if (bytes.size() < sizeof(value)) return false;
  std::memcpy(&value, bytes.data(), sizeof(value));
  bytes = bytes.subspan(sizeof(value));
  return true;
}

std::vector<std::byte> body_of(const std::pair<std::uint64_t, std::string>& post) {
  std::vector<std::byte> body;
  put(body, &post.first, 1);
  put(body, post.second.data(), post.second.size());
  return body;
}

}  // namespace

/// Begins an `asker`'s epoch or, if that is null, a new one of our own if it is time.
void TcpControl::begin_epoch(std::uint64_t epoch, Edge* asker) {
  const Clock::time_point now = Clock::now();
  if (asker == nullptr) {
    const Clock::duration each = kEpochPerRank * (identity_.ranks + identity_.rank);
    if (now - epoch_began_ < each + kLessOften * std::min(epoch_heard_ - epoch_began_, each)) return;
    epoch = ((epoch_ >> kRankDigits) + 1) << kRankDigits | identity_.rank;
  }
  if (epoch <= epoch_) return;
  const bool another = epoch >> kRankDigits != epoch_ >> kRankDigits;
  epoch_ = epoch;
  epoch_began_ = epoch_heard_ = now;
  if (another) fresh_.clear();
  for (Edge& edge : edges_) {
    edge.listens = &edge == asker;
    edge.news = fresh_;
  }
  if (another) renew();
  ask(asker);
  if (!reading_) tell();
}

/// Updates this rank's own status.
void TcpControl::renew() {
  const std::uint64_t first = (epoch_ >> kRankDigits) << kVersionDigits;
  version_ = std::max(version_, first > 0 ? first - 1 : 0);
  hear(identity_.rank, own_status(), nullptr);
}

/// The rank has said goodbye.
void TcpControl::part(std::uint32_t rank, const Edge* from) {
  end(rank, PeerStatus::State::left, "left the group");
  for (Edge& edge : edges_) {
    if (&edge != from) edge.gone.insert(rank);
  }
}

void TcpControl::tell() {
  if (!relays_) return;
  for (Edge& edge : edges_) tell(edge);
}

void TcpControl::tell(Edge& edge) {
  if (!edge.socket || edge.blocked) return;
  if (edge.listens && edge.unanswered < kMostUnanswered && !edge.news.empty()) tell(edge, edge.news, false);
  if (!edge.gone.empty()) tell(edge, edge.gone, true);
}

void TcpControl::tell(Edge& edge, RankSet& whom, bool left) {
  std::vector<std::pair<Held, RankSet>> said;
  whom.each([&](std::uint32_t rank) {
    auto alike = std::ranges::find(said, said_[rank], [](const auto& group) { return group.first; });
    if (alike == said.end()) alike = said.insert(said.end(), {said_[rank], RankSet(identity_.ranks)});
    alike->second.insert(rank);
  });
  whom.clear();
  std::vector<std::byte> body;
  for (const auto& [status, ranks] : said) {
    const std::span<const std::uint64_t> words = ranks.words();
    const auto some = [](std::uint64_t word) { return word != 0; };
    const auto first = static_cast<std::size_t>(std::ranges::find_if(words, some) - words.begin());
    std::size_t last = words.size();
    while (words[last - 1] == 0) --last;
    const StatusGroup group{.bytes = static_cast<std::uint32_t>(status->bytes.size()),
                            .first_word = static_cast<std::uint32_t>(first),
                            .words = static_cast<std::uint32_t>(last - first),
                            .left = left ? 1U : 0U};
    if (body.empty()) put(body, &epoch_, 1);
    put(body, &group, 1);
    put(body, status->bytes.data(), status->bytes.size());
    put(body, &words[first], last - first);
    if (body.size() < kLargestBody / 2 && &status != &said.back().first) continue;
    edge.unanswered += body.size();
    send(edge, Kind::statuses, identity_.rank, body);
    body.clear();
  }
  if (!edge.outbox.empty()) write(edge);
}

bool TcpControl::take_statuses(Edge& edge, std::span<const std::byte> body) {
  std::uint64_t epoch = 0;
  if (!take_from(body, epoch)) return false;
  while (!body.empty()) {
    StatusGroup group;
    if (!take_from(body, group) || group.bytes > body.size()) return false;
    const Held said = held(body.first(group.bytes));
    if (!said) return false;
    body = body.subspan(group.bytes);
    RankSet ranks(identity_.ranks);
    const std::size_t room = ranks.words().size();
    if (group.first_word > room || group.words > room - group.first_word) return false;
    for (std::uint64_t& word : ranks.words().subspan(group.first_word, group.words)) {
      if (!take_from(body, word)) return false;
    }
    bool there = true;
    ranks.each([&](std::uint32_t rank) {
      if (rank >= identity_.ranks) {
        there = false;
      } else if (rank != identity_.rank && states_[rank] == PeerStatus::State::alive) {
        hear(rank, said, &edge);
        if (group.left != 0) part(rank, &edge);
      }
    });
    if (!there) return false;
  }
  if (epoch == epoch_) {
    edge.listens = true;
    epoch_heard_ = Clock::now();
  }
  return true;
}

// ---- when neighbours go

void TcpControl::close_ranks() {
  if (!frayed_ || called_) return;
  for (std::uint32_t step = 1; step < identity_.ranks; ++step) {
    const std::uint32_t next = (identity_.rank + step) % identity_.ranks;
    if (states_[next] != PeerStatus::State::alive || unreached_.contains(next)) continue;
    const auto there = [next](const Edge& edge) { return edge.rank == next && edge.socket; };
    if (std::ranges::any_of(edges_, there)) break;
    if (between_.contains(next)) return;  // it is being called
    called_ = next;
    meeting_->call_control(next);
    return;
  }
  frayed_ = false;
}

/// Neighbours that connect long after the group has formed, perhaps because a former connection was lost, and news that
/// one could not.
void TcpControl::receive() {
  for (TcpArrival& arrival : meeting_->take_controls()) {
    if (arrival.rank == called_) called_.reset();
    if (states_[arrival.rank] != PeerStatus::State::alive) continue;
    if (const auto lost = between_.extract(arrival.rank)) {
      log_always("rank " + std::to_string(arrival.rank) + " " + lost.mapped() + ", and has another now");
    }
    bool asked = false;
    for (Edge& edge : edges_) {
      if (edge.rank != arrival.rank) continue;
      asked |= std::exchange(edge.asked, false);
      if (edge.socket) close(edge);
    }
    Edge& edge = join(arrival.rank, std::move(arrival.socket));
    catch_up(edge);
    if (asked) ask(edge);
  }
  for (const std::uint32_t rank : meeting_->take_unreached()) {
    if (rank == called_) called_.reset();
    unreached_.insert(rank);  // it has gone, and nobody has told us how
    if (const auto lost = between_.extract(rank); lost && states_[rank] == PeerStatus::State::alive) {
      die(rank, lost.mapped());
    }
    close_ranks();
  }
}

/// Tells it what it may have missed.
void TcpControl::catch_up(Edge& edge) {
  if (!relays_) send(edge, Kind::status, identity_.rank, own_status()->bytes);
  edge.news = fresh_;
  for (std::uint32_t rank = 0; rank < identity_.ranks; ++rank) {
    if (states_[rank] == PeerStatus::State::left) edge.gone.insert(rank);
  }
  for (const auto& [rank, how] : ends_) {
    if (relays_ && states_[rank] == PeerStatus::State::dead)
      send(edge, Kind::dead, rank, std::as_bytes(std::span(how)));
  }
  for (const auto& [rank, posts] : posts_) {
    if (!relays_ && rank != identity_.rank) continue;
    for (const Post& post : posts) {
      if (post.first != 0) send(edge, Kind::post, rank, body_of(post));
    }
  }
  if (aborted_) send(edge, Kind::abort, identity_.rank, encode(*aborted_));
  if (!relays_) return;
  if (epoch_ != 0) ask(edge);
  tell(edge);
}

}  // namespace syntony
