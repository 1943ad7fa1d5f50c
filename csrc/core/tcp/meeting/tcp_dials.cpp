// Making connections: tries each address of a rank in turn until one answers as that rank.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "core/process/host.hpp"
#include "core/tcp/meeting/tcp_handshake.hpp"
#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {
namespace {

/// A rank may have dropped us among too many strangers: one that hangs up before answering is retried this often, after
/// a pause that doubles, for half a second in all. (A rank that has failed no longer listens, and refuses the second
/// time.)
constexpr int kMostHangUps = 11;
constexpr std::chrono::milliseconds kFirstPause{1};
/// For the other rank to dial, in units of the time after which it does while the group forms.
constexpr int kWorthWaiting = 3;
constexpr const char* kNoRank = "answered, but not as a rank of this group";

std::string refusal(int error_number) {
  const bool refused = error_number == ECONNREFUSED;
  return std::string(refused ? "refused the connection" : "cannot be reached") + " (" + sentence_of(error_number) + ")";
}

}  // namespace

TcpMeeting::Dial& TcpMeeting::plan_dial(std::uint32_t rank, std::uint16_t flow, const TcpEndpoints& theirs,
                                        Clock::time_point deadline, std::optional<std::size_t> rail) {
  Dial& dial = dials_.emplace_back();
  dial.rank = rank;
  dial.flow = flow;
  dial.deadline = deadline;
  // The control connection uses the same address as the first data connection, unless that has failed.
  for (const TcpAddress& address :
       theirs.reachable_from(listener_.endpoints(), rail.value_or(flow == kControlFlow ? 0 : std::size_t{flow}))) {
    dial.candidates.push_back({.address = address});
  }
  return dial;
}

void TcpMeeting::cancel_dials(std::uint32_t rank, bool control) {
  for (Dial& dial : dials_) {
    if (dial.rank != rank || (dial.flow == kControlFlow) != control) continue;
    drop(dial.socket);
    dial.over = true;
  }
}

void TcpMeeting::go_on(Dial& dial, Clock::time_point now) {
  if (dial.over) return;
  if (std::exchange(dial.ready, false)) {
    advance(dial);
  } else if (now >= dial.deadline) {
    fail(dial, unanswered(dial));
  } else if (!dial.connected && now >= dial.give_up) {
    if (dial.waiting) return fail(dial, unreachable(dial));
    dial.pausing ? attempt(dial) : try_another(dial);
  }
}

void TcpMeeting::attempt(Dial& dial) {
  Candidate& candidate = dial.candidates[dial.current];
  dial.connected = dial.answered = dial.pausing = false;
  dial.received = 0;
  dial.give_up = Clock::now() + dial.patience;
  dial.socket = open_tcp_socket(candidate.address.family());
  size_buffers(dial.socket.get(), options_);
  if (dial.from.family() != AF_UNSPEC && ::bind(dial.socket.get(), dial.from.get(), dial.from.length()) != 0) {
    candidate.refused = errno;
    return reject(dial, refusal(errno));
  }
  if (::connect(dial.socket.get(), candidate.address.get(), candidate.address.length()) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    candidate.refused = errno;
    return reject(dial, refusal(errno));
  }
  watch(dial.socket.get(), EPOLLOUT);
}

/// Gives up the current address for good.
void TcpMeeting::reject(Dial& dial, const std::string& why) {
  dial.candidates[dial.current].refusal = why;
  try_another(dial);
}

/// The listener hung up, with or without having read our Hello.
void TcpMeeting::pause(Dial& dial, const std::string& why) {
  Candidate& candidate = dial.candidates[dial.current];
  if (++candidate.hang_ups == kMostHangUps) return reject(dial, why);
  drop(dial.socket);
  if (candidate.hang_ups == 1) return attempt(dial);
  dial.connected = false;
  dial.pausing = true;
  dial.give_up = Clock::now() + kFirstPause * (1U << static_cast<unsigned>(candidate.hang_ups - 2));
}

void TcpMeeting::try_another(Dial& dial) {
  drop(dial.socket);
  const std::size_t count = dial.candidates.size();
  for (std::size_t step = 1; step <= count; ++step) {
    const std::size_t next = (dial.current + step) % count;
    if (!dial.candidates[next].refusal.empty()) continue;
    if (next <= dial.current) {
      dial.patience *= 2;
      ask_to_be_called(dial);
    }
    dial.current = next;
    return attempt(dial);
  }
  if (dial.greeted || dial.called_back) return fail(dial, unreachable(dial));
  ask_to_be_called(dial);
  dial.waiting = true;
  dial.give_up = Clock::now() + kWorthWaiting * patience_with_calls();
}

/// Once, if nothing has got through to it. While the group forms, nobody has to be asked (call_higher()).
void TcpMeeting::ask_to_be_called(Dial& dial) {
  if (dial.greeted || dial.called_back || forming_ || std::exchange(dial.asked, true)) return;
  const bool control = dial.flow == kControlFlow;
  const auto same = [&](const Dial& other) {
    return &other != &dial && other.rank == dial.rank && (other.flow == kControlFlow) == control && other.asked;
  };
  if (std::ranges::none_of(dials_, same)) requests_.push_back({dial.rank, control});
}

/// How long a rank waits to be dialed before it dials: of a large group, not all have begun at the same time.
TcpMeeting::Clock::duration TcpMeeting::patience_with_calls() const {
  constexpr std::chrono::milliseconds kLeast{1000}, kPerRank{2};
  return kLeast + identity_.ranks * kPerRank;
}

void TcpMeeting::advance(Dial& dial) {
  if (!dial.connected && !introduce(dial)) return;
  if (!dial.answered && !answer(dial)) return;
  const Reading reading = read_on(dial.socket.get(), dial.welcome, dial.received);
  if (reading == Reading::pending) return;
  if (reading == Reading::failed) return hung_up(dial);
  if (dial.welcome.magic != kWelcomeMagic) return reject(dial, kNoRank);
  dial.over = true;
  settle(dial.rank, dial.hello, dial.ack, std::move(dial.socket), dial.candidates[dial.current].address, true);
}

/// Handles a read that failed with errno.
void TcpMeeting::hung_up(Dial& dial) {
  // NOLINTNEXTLINE(clang-analyzer-unix.Errno): read_on sets it, 0 where the other end has closed
  pause(dial, errno == 0 ? "closed the connection: its group has failed, or another group listens there"
                         : "broke the connection (" + sentence_of(errno) + ")");
}

/// Answers the Ack. False if it is incomplete or invalid.
bool TcpMeeting::answer(Dial& dial) {
  const Reading reading = read_on(dial.socket.get(), dial.ack, dial.received);
  if (reading == Reading::pending) return false;
  if (reading == Reading::failed) return hung_up(dial), false;
  const Ack& ack = dial.ack;
  if (ack.magic != kAckMagic || ack.version != kWireVersion ||
      ack.proof != proof_of(ack, identity_.token, dial.hello.nonce) || ack.from != dial.rank || ack.flow != dial.flow) {
    return reject(dial, kNoRank), false;
  }
  const std::size_t flows = pair_of(dial.rank).flows;
  if (ack.flows != flows) return fail(dial, disagreement(dial.rank, ack.flows, flows)), false;
  if (!write_whole(dial.socket.get(), answer_to(ack, dial.hello, identity_.token))) return hung_up(dial), false;
  dial.received = 0;
  return dial.answered = true;
}

/// Sends Hello over a connection just made. False if it failed.
bool TcpMeeting::introduce(Dial& dial) {
  int failure = 0;
  socklen_t length = sizeof(failure);
  if (getsockopt(dial.socket.get(), SOL_SOCKET, SO_ERROR, &failure, &length) != 0) failure = errno;
  dial.hello = proven(Hello{.flow = dial.flow,
                            .nonce = random_token(),
                            .group = identity_.group,
                            .from = identity_.rank,
                            .to = dial.rank,
                            .flows = pair_of(dial.rank).flows},
                      identity_.token);
  if (failure == 0 && !write_whole(dial.socket.get(), dial.hello)) failure = errno;
  dial.candidates[dial.current].refused = failure;
  if (failure != 0) return reject(dial, refusal(failure)), false;
  watch(dial.socket.get(), EPOLLIN, false);
  return dial.greeted = dial.connected = true;
}

/// While the group forms, a rank that refuses may never have existed; later it has gone.
Error TcpMeeting::unreachable(const Dial& dial) const {
  const bool gone = !forming_ && std::ranges::any_of(dial.candidates, [](const Candidate& candidate) {
    return candidate.refused == ECONNREFUSED || candidate.hang_ups > 0;
  });
  std::string sentence = "rank " + std::to_string(dial.rank);
  for (const Candidate& candidate : dial.candidates) {
    sentence +=
        (&candidate == dial.candidates.data() ? " at " : "; at ") + candidate.address.text() + " " + candidate.refusal;
  }
  return Error(gone ? Error::Kind::dead : Error::Kind::system,
               sentence + "; has its process ended, or does a firewall stand between?", {static_cast<int>(dial.rank)});
}

Error TcpMeeting::unanswered(const Dial& dial) const {
  return Error(Error::Kind::timeout,
               "rank " + std::to_string(dial.rank) + " at " + dial.candidates[dial.current].address.text() +
                   " has not answered a connection for " + std::to_string(timeout_.count()) +
                   " ms; does a firewall stand between?",
               {static_cast<int>(dial.rank)});
}

}  // namespace syntony
