#include "core/tcp/meeting/tcp_meeting.hpp"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/tcp/meeting/tcp_handshake.hpp"
#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {
namespace {

/// How often progress() looks again if there was more than it takes at once: a flood of strangers has no end.
constexpr int kMostLooks = 4;

}  // namespace

TcpEndpoints TcpMeeting::endpoints_of(std::uint32_t rank) const {
  try {
    return directory_.of(rank);
  } catch (const Error& error) {
    throw Error(Error::Kind::system, "rank " + std::to_string(rank) + " published no usable address: " + error.what(),
                {static_cast<int>(rank)});
  }
}

TcpEndpoints TcpMeeting::dialable(std::uint32_t rank) const {
  TcpEndpoints theirs = endpoints_of(rank);
  if (!theirs.reachable_from(listener_.endpoints()).empty()) return theirs;
  throw Error(Error::Kind::system,
              "rank " + std::to_string(rank) +
                  " published no address that another machine can reach; is SYNTONY_SOCKET_IFNAME right there?",
              {static_cast<int>(rank)});
}

TcpMeeting::TcpMeeting(TcpListener listener, TcpOptions options, const GroupIdentity& identity,
                       std::span<const std::string> published, std::span<const std::uint32_t> others,
                       std::chrono::milliseconds timeout)
    : listener_(std::move(listener)),
      options_(std::move(options)),
      identity_(identity),
      others_(identity.ranks),
      directory_(published, others, listener_.endpoints().machine),
      timeout_(std::max(timeout, std::chrono::milliseconds::zero())),  // a process may have been stopped meanwhile
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw system_error("cannot make an epoll set", errno);
  for (const UniqueFd& socket : listener_.sockets()) watch(socket.get(), EPOLLIN);
  for (const std::uint32_t rank : others) others_.insert(rank);
}

TcpMeeting::~TcpMeeting() = default;

// ---- while the group forms

std::vector<TcpPeer> TcpMeeting::connect_control(std::span<const std::uint32_t> neighbours) {
  const Clock::time_point deadline = Clock::now() + timeout_;
  Clock::time_point patient_until = Clock::now() + patience_with_calls();
  forming_ = true;
  for (const std::uint32_t rank : neighbours) {
    if (!expects(rank)) continue;
    pair_of(rank).neighbour = true;
    if (rank > identity_.rank) continue;
    plan_dial(rank, kControlFlow, dialable(rank), Clock::time_point::max());
  }
  for (Dial& dial : dials_) attempt(dial);
  const auto throw_failure = [this] {
    if (failures_.empty()) return;
    // A mismatch explains why the others ended, not the other way round.
    const auto mismatch = std::ranges::find(failures_, Error::Kind::mismatch, &Error::kind);
    throw Error(mismatch != failures_.end() ? *mismatch : failures_.front());
  };
  throw_failure();
  while (!complete()) {
    if (Clock::now() >= deadline) throw late();
    if (Clock::now() >= patient_until) {
      patient_until = Clock::time_point::max();
      call_higher();
    }
    Clock::time_point until = std::min(deadline, patient_until);
    for (const Guest& guest : guests_) until = std::min(until, guest.deadline);
    for (const Dial& dial : dials_) {
      if (!dial.connected) until = std::min(until, dial.give_up);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    serve(static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(left.count(), 0, 60'000)));
    throw_failure();
    for (const int socket : std::exchange(stirring_, {})) {
      const auto control =
          std::ranges::find(arrivals_, socket, [](const TcpArrival& arrival) { return arrival.socket.get(); });
      if (control != arrivals_.end()) require_alive(*control);
    }
  }
  forming_ = false;
  std::vector<TcpPeer> peers;
  std::vector<TcpArrival> early;  // data sockets of ranks that are ahead of us
  for (const auto& [_, pair] : pairs_) {
    if (pair.neighbour) peers.push_back({.rank = pair.rank, .endpoint = {}, .control = {}, .flows = {}});
  }
  for (TcpArrival& arrival : std::exchange(arrivals_, {})) {
    if (arrival.flow == kControlFlow) {
      TcpPeer& peer = *std::ranges::find(peers, arrival.rank, &TcpPeer::rank);
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, arrival.socket.get(), nullptr);
      peer.endpoint = std::move(arrival.endpoint);
      peer.control = std::move(arrival.socket);
    } else {
      early.push_back(std::move(arrival));
    }
  }
  arrivals_ = std::move(early);
  guests_.shrink_to_fit();
  dials_.shrink_to_fit();
  return peers;
}

/// Created on demand: among thousands, a rank deals with few.
TcpMeeting::Pair& TcpMeeting::pair_of(std::uint32_t rank) {
  const auto [entry, fresh] = pairs_.try_emplace(rank);
  Pair& pair = entry->second;
  if (!fresh) return pair;
  pair.rank = rank;
  const TcpEndpoints& ours = listener_.endpoints();
  const std::size_t flows = options_.flows > 0 ? options_.flows : ours.flows_with(endpoints_of(rank));
  pair.flows = static_cast<std::uint16_t>(flows);
  return pair;
}

bool TcpMeeting::expects(std::uint32_t rank) const { return rank < identity_.ranks && others_.contains(rank); }

bool TcpMeeting::complete() const {
  return std::ranges::all_of(pairs_, [](const auto& one) { return one.second.control || !one.second.neighbour; });
}

/// A connected rank that ends now will not come back: no need to wait for the deadline.
void TcpMeeting::require_alive(const TcpArrival& control) const {
  // Readable bytes are messages to this group, perhaps a goodbye from a rank that is ahead of the others.
  const std::optional<int> end = end_of(control.socket.get());
  if (!end) return;
  std::vector<int> ranks{static_cast<int>(control.rank)};
  std::string sentence = "rank " + std::to_string(control.rank) + " at " + control.endpoint +
                         " ended before the group was connected (" +
                         (*end == 0 ? std::string("it closed its connection") : sentence_of(*end)) + ")";
  const std::string others = missing(ranks);
  throw Error(Error::Kind::dead, others.empty() ? sentence : sentence + "; still missing: " + others, ranks);
}

/// "rank 3 at 10.0.0.3:4000, rank 4"; adds their ranks to `ranks`.
std::string TcpMeeting::missing(std::vector<int>& ranks) const {
  std::string sentence;
  for (const auto& [_, pair] : pairs_) {
    if (pair.control || !pair.neighbour) continue;
    ranks.push_back(static_cast<int>(pair.rank));
    sentence += (sentence.empty() ? "rank " : ", rank ") + std::to_string(pair.rank);
    const auto dial =
        std::ranges::find_if(dials_, [&](const Dial& one) { return one.rank == pair.rank && !one.candidates.empty(); });
    if (dial != dials_.end()) sentence += " at " + dial->candidates[dial->current].address.text();
  }
  return sentence;
}

Error TcpMeeting::late() const {
  std::vector<int> ranks;
  const std::string who = missing(ranks);
  return Error(Error::Kind::timeout,
               "no connection within " + std::to_string(timeout_.count()) + " ms with " + who + "; have they started?",
               ranks);
}

Error TcpMeeting::disagreement(std::uint32_t rank, std::uint32_t theirs, std::size_t ours) const {
  return Error(Error::Kind::mismatch,
               "rank " + std::to_string(rank) + " opens " + std::to_string(theirs) + " data connections per pair, " +
                   "rank " + std::to_string(identity_.rank) + " opens " + std::to_string(ours) +
                   "; SYNTONY_TCP_FLOWS must be equal on all ranks",
               {static_cast<int>(rank)});
}

// ---- at any time

void TcpMeeting::call(std::uint32_t rank) { call(rank, false); }

void TcpMeeting::call(std::uint32_t rank, bool called_back) {
  Pair& pair = pair_of(rank);
  if (pair.link != Link::none) return;
  const TcpEndpoints theirs = dialable(rank);
  pair.link = Link::ours;
  const std::size_t first = dials_.size();
  for (std::uint16_t flow = 0; flow < pair.flows; ++flow) {
    plan_dial(rank, flow, theirs, Clock::now() + timeout_).called_back = called_back;
  }
  for (std::size_t dial = first; dial < dials_.size(); ++dial) {
    if (!dials_[dial].over) attempt(dials_[dial]);
  }
}

void TcpMeeting::call_control(std::uint32_t rank) { call_control(rank, false, 0, timeout_); }

void TcpMeeting::call_control_again(std::uint32_t rank) {
  constexpr std::chrono::milliseconds kLongEnough{2000};  // an answer takes milliseconds, and others wait to hear of it
  call_control(rank, true, 0, std::min(timeout_, kLongEnough));
}

void TcpMeeting::call_control(std::uint32_t rank, bool called_back, std::size_t rail,
                              std::chrono::milliseconds patience) {
  try {
    Dial& dial = plan_dial(rank, kControlFlow, dialable(rank), Clock::now() + patience, rail);
    dial.called_back = called_back;
    attempt(dial);
  } catch (const Error&) {
    unreached_.push_back(rank);
  }
}

void TcpMeeting::call_back(std::uint32_t rank, bool control) {
  if (broken_by_ || !expects(rank)) return;
  try {
    if (!control) return call(rank, true);
    if (!pair_of(rank).control) call_control(rank, true, 0, timeout_);
  } catch (const Error& error) {
    failures_.push_back(error);
  }
}

void TcpMeeting::avoid(const TcpAddress& local, std::size_t instead) {
  for (auto& [rank, pair] : pairs_) {
    if (!pair.control || !pair.control_from.same_host(local)) continue;
    pair.control_from = {};  // once
    call_control(rank, false, instead, timeout_);
  }
}

bool TcpMeeting::makes_control(std::uint32_t rank) const {
  return std::ranges::find(controls_, rank, &TcpArrival::rank) != controls_.end() ||
         std::ranges::any_of(
             dials_, [rank](const Dial& dial) { return dial.rank == rank && dial.flow == kControlFlow && !dial.over; });
}

/// The higher ranks have had their time.
void TcpMeeting::call_higher() {
  const std::size_t first = dials_.size();
  for (const auto& [rank, pair] : pairs_) {
    if (!pair.neighbour || pair.control || rank < identity_.rank) continue;
    const TcpEndpoints theirs = endpoints_of(rank);
    if (theirs.reachable_from(listener_.endpoints()).empty()) continue;
    plan_dial(rank, kControlFlow, theirs, Clock::time_point::max()).called_back = true;
  }
  for (std::size_t dial = first; dial < dials_.size(); ++dial) attempt(dials_[dial]);
}

void TcpMeeting::refuse_request(const TcpRequest& request) {
  for (Dial& dial : dials_) {
    const bool meant = dial.rank == request.rank && (dial.flow == kControlFlow) == request.control;
    if (meant && dial.waiting && !dial.over) fail(dial, unreachable(dial));
  }
}

void TcpMeeting::progress() {
  if (broken_by_) return;
  try {
    serve(0);
  } catch (const Error& error) {
    broken_by_ = error;
  }
}

void TcpMeeting::serve(int milliseconds) {
  bool more = true;
  for (int turn = 0; more && turn < kMostLooks; ++turn, milliseconds = 0) {
    more = look(milliseconds);
    for (Guest& guest : guests_) {
      if (std::exchange(guest.ready, false)) welcome(guest);
    }
    const Clock::time_point now = Clock::now();
    for (Dial& dial : dials_) go_on(dial, now);
    for (Guest& guest : guests_) {
      if (guest.socket && now >= guest.deadline) drop(guest.socket);
    }
    std::erase_if(guests_, [](const Guest& guest) { return !guest.socket; });
    std::erase_if(dials_, &Dial::over);
    for (const int socket : std::exchange(knocking_, {})) more |= receive_guests(socket);
  }
  if (!forming_) stirring_.clear();
}

/// Updates guests and dials with their events. True if there may be more to see.
bool TcpMeeting::look(int milliseconds) {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), milliseconds);
  if (count < 0 && errno != EINTR) throw system_error("cannot wait for connections", errno);
  for (int i = 0; i < count; ++i) note(events[static_cast<std::size_t>(i)].data.fd);
  return count == static_cast<int>(events.size());
}

void TcpMeeting::note(int descriptor) {
  const auto is = [descriptor](const auto& one) { return one.socket.get() == descriptor; };
  if (const auto guest = std::ranges::find_if(guests_, is); guest != guests_.end()) {
    guest->ready = true;
  } else if (const auto dial = std::ranges::find_if(dials_, is); dial != dials_.end()) {
    dial->ready = true;
  } else if (std::ranges::find(listener_.sockets(), descriptor, &UniqueFd::get) != listener_.sockets().end()) {
    knocking_.push_back(descriptor);
  } else {
    stirring_.push_back(descriptor);
  }
}

void TcpMeeting::settle(std::uint32_t rank, const Hello& hello, const Ack& ack, UniqueFd socket,
                        const TcpAddress& address, bool dialed) {
  Pair& pair = pair_of(rank);
  const std::uint16_t flow = hello.flow;
  const bool watched = forming_ && flow == kControlFlow;  // whether to watch for its end before the group is connected
  if (watched) {
    watch(socket.get(), EPOLLRDHUP | EPOLLET, false);
  } else {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
  }
  if (flow == kControlFlow) {
    tune_control_socket(socket.get(), options_);
    pair.control = true;
    pair.control_from = TcpAddress::local(socket.get());
  } else {
    tune_data_socket(socket.get(), options_);
    if (!pair.replaces(flow)) ++pair.met;
    if (const auto taken = vacancy(pair, flow); taken != pair.vacancies.end()) pair.vacancies.erase(taken);
  }
  std::unique_ptr<TlsSession> session;
  if (options_.encrypts) {
    session = std::make_unique<TlsSession>(socket.get(), dialed ? TlsSession::End::dials : TlsSession::End::accepts,
                                           key_of(hello, ack, identity_.token));
  }
  (flow == kControlFlow && !forming_ ? controls_ : arrivals_)
      .push_back({.rank = rank,
                  .flow = flow,
                  .socket = TcpStream(std::move(socket), std::move(session)),
                  .endpoint = address.text(),
                  .dialed = dialed});
}

/// The connection has ended, and another takes its place.
void TcpMeeting::forget(const TcpArrival& arrival) {
  Pair& pair = pair_of(arrival.rank);
  if (arrival.flow == kControlFlow) {
    pair.control = false;
  } else {
    --pair.met;
  }
}

/// Ends everything else about this rank. While the group forms, that ends the meeting, after the others' turn.
void TcpMeeting::fail(std::uint32_t rank, const Error& error) {
  failures_.push_back(error);
  pair_of(rank).link = Link::failed;
  cancel_dials(rank, false);
}

/// A rank that has gone since the group formed is no failure of the others that wanted to tell it something.
void TcpMeeting::fail(Dial& dial, const Error& error) {
  if (pair_of(dial.rank).replaces(dial.flow)) return postpone(dial);
  if (dial.flow != kControlFlow || (forming_ && !dial.called_back)) return fail(dial.rank, error);
  drop(dial.socket);
  dial.over = true;
  if (!forming_) unreached_.push_back(dial.rank);
}

void TcpMeeting::watch(int socket, std::uint32_t events, bool fresh) const {
  epoll_event event{};
  event.events = events;
  event.data.fd = socket;
  if (::epoll_ctl(epoll_.get(), fresh ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, socket, &event) != 0) {
    throw system_error("cannot watch a socket", errno);
  }
}

/// Removed explicitly: a child process may still hold it, and with it the place in the set.
void TcpMeeting::drop(UniqueFd& socket) const {
  if (socket) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
  socket.reset();
}

}  // namespace syntony
