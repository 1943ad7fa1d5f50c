// Accepting connections: checks whether a peer is a rank of this group.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "core/process/host.hpp"
#include "core/tcp/meeting/tcp_handshake.hpp"
#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {
namespace {

constexpr std::chrono::seconds kLongestSilence{5};

Error doubled(std::uint32_t rank, int before, const TcpAddress& now) {
  return Error(Error::Kind::mismatch,
               "two processes claim to be rank " + std::to_string(rank) + " of this group: one connected from " +
                   TcpAddress::remote(before).text() + ", another from " + now.text() +
                   "; every process needs a rank of its own",
               {static_cast<int>(rank)});
}

}  // namespace

/// Accepts so many at once that earlier guests are not kept waiting. True if there may be more.
bool TcpMeeting::receive_guests(int listening) {
  for (std::size_t turn = 0; turn < kMostGuests; ++turn) {
    sockaddr_storage from{};
    socklen_t length = sizeof(from);
    UniqueFd socket(accept4(listening, reinterpret_cast<sockaddr*>(&from), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      // A connection that died in the queue (ECONNABORTED and the like) does not matter; running out of descriptors
      // does, unless strangers hold them.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        if (guests_.empty()) throw system_error("cannot accept a connection", errno);
        drop(guests_.front().socket);
        guests_.erase(guests_.begin());
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINVAL || errno == EBADF) return false;
      continue;
    }
    const TcpAddress address = TcpAddress::from(reinterpret_cast<sockaddr*>(&from)).value_or(TcpAddress{});
    watch(socket.get(), EPOLLIN);
    Guest guest{.socket = std::move(socket), .address = address, .deadline = Clock::now() + kLongestSilence};
    welcome(guest);  // a rank's Hello has usually arrived already
    if (!guest.socket) continue;
    if (guests_.size() == kMostGuests) {  // drop those without a valid Hello first
      auto stranger = std::ranges::find(guests_, false, &Guest::challenged);
      if (stranger == guests_.end()) stranger = guests_.begin();
      drop(stranger->socket);
      guests_.erase(stranger);
    }
    guests_.push_back(std::move(guest));
  }
  return true;
}

/// A stranger is dropped without an answer; so is one that replays a rank's earlier messages, after its first.
void TcpMeeting::welcome(Guest& guest) {
  if (guest.parked) return drop(guest.socket);  // it has hung up
  if (!guest.challenged && !challenge(guest)) return;
  const Reading reading = read_on(guest.socket.get(), guest.answer, guest.received);
  if (reading == Reading::pending) return;
  const Hello& hello = guest.hello;
  if (reading == Reading::failed || guest.answer != answer_to(guest.ack, hello, identity_.token)) {
    return drop(guest.socket);
  }
  if (!comes_first(guest)) return;
  if (!write_whole(guest.socket.get(), Welcome{})) return drop(guest.socket);
  settle(hello.from, hello, guest.ack, std::move(guest.socket), guest.address, false);
}

/// Answers a valid Hello and asks for a proof that cannot have been recorded. False if Hello is incomplete or invalid.
bool TcpMeeting::challenge(Guest& guest) {
  const Reading reading = read_on(guest.socket.get(), guest.hello, guest.received);
  const Hello& hello = guest.hello;
  if (guest.received >= sizeof(hello.magic) && hello.magic != kHelloMagic) return drop(guest.socket), false;
  if (reading == Reading::pending) return false;
  if (reading == Reading::failed || !admissible(hello, identity_) || !expects(hello.from)) {
    return drop(guest.socket), false;
  }
  const std::uint32_t flows = pair_of(hello.from).flows;
  const Ack ack{.flow = hello.flow, .nonce = random_token(), .from = identity_.rank, .flows = flows};
  guest.ack = proven(ack, identity_.token, hello.nonce);
  if (!write_whole(guest.socket.get(), guest.ack)) return drop(guest.socket), false;
  if (hello.flows != flows) return fail(hello.from, disagreement(hello.from, hello.flows, flows)), false;
  if (pair_of(hello.from).replaces(hello.flow) && !admits(guest)) return false;
  guest.received = 0;
  return guest.challenged = true;
}

/// If both ranks have begun to dial, the higher rank's sockets count, unless it has got through to none of the lower's
/// addresses, so that the lower cannot have accepted any.
bool TcpMeeting::ours_count(const Hello& hello) {
  if (identity_.rank < hello.from) return false;
  const bool control = hello.flow == kControlFlow;
  const Pair& pair = pair_of(hello.from);
  return (!control && pair.link == Link::ours && pair.met > 0) || std::ranges::any_of(dials_, [&](const Dial& dial) {
           return dial.rank == hello.from && (dial.flow == kControlFlow) == control && dial.greeted && !dial.over;
         });
}

/// True if this socket is the one that counts.
bool TcpMeeting::comes_first(Guest& guest) {
  const Hello& hello = guest.hello;
  Pair& pair = pair_of(hello.from);
  if (pair.replaces(hello.flow)) return admits(guest);
  const auto before = std::ranges::find_if(
      arrivals_, [&](const TcpArrival& arrival) { return arrival.rank == hello.from && arrival.flow == hello.flow; });
  if (before != arrivals_.end()) {
    if (before->dialed) return drop(guest.socket), false;  // it dialed, too
    if (!ended(before->socket.get())) {
      return fail(hello.from, doubled(hello.from, before->socket.get(), guest.address)), false;
    }
    forget(*before);
    arrivals_.erase(before);
  }
  const bool control = hello.flow == kControlFlow;
  // Once the group has formed, a rank that makes another control connection has lost the former.
  if (control ? forming_ && pair.control : pair.met >= pair.flows || pair.link == Link::failed)
    return drop(guest.socket), false;
  if (ours_count(hello)) return guest.parked = true, false;
  if (control || pair.link == Link::ours) cancel_dials(hello.from, control);
  if (!control) pair.link = Link::theirs;
  return true;
}

}  // namespace syntony
