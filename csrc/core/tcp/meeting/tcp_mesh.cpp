#include "core/tcp/meeting/tcp_mesh.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/process/host.hpp"
#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {
namespace {

using Clock = std::chrono::steady_clock;

/// Strangers that connect and stay silent are kept waiting, but only so many of them and only so long: a rank says its
/// Hello at once.
constexpr std::size_t kMostGuests = 256;
constexpr std::chrono::seconds kLongestSilence{5};
/// A rank may have been dropped among too many strangers: whoever hangs up before an answer is tried so often, after a
/// pause that doubles. (One that has failed does not listen any more, and refuses the second time.)
constexpr int kMostHangUps = 6;
constexpr std::chrono::milliseconds kFirstPause{10};
/// How long an address may leave a connection attempt unanswered before the next one is tried; doubled in every round.
constexpr std::chrono::milliseconds kFirstPatience{1000};
constexpr const char* kNoRank = "answered, but not as a rank of this group";

/// A connection being received: somebody who has not yet proven to be a rank, now.
struct Guest {
  UniqueFd socket;  // empty once welcomed or dropped
  TcpAddress address;
  Clock::time_point deadline;
  Hello hello{};
  Ack ack{};  // what it was told, once its Hello is right
  Answer answer{};
  std::size_t received = 0;  // of the message that is its turn
  bool challenged = false;   // told the Ack
  bool ready = false;        // something to read
};

struct Candidate {
  TcpAddress address;
  std::string refusal;  // why it is out for good; empty while there is hope
  int hang_ups = 0;
};

/// A connection being made: one socket of one pair.
struct Dial {
  std::uint32_t rank = 0;
  std::uint16_t flow = 0;
  std::vector<Candidate> candidates;
  std::size_t current = 0;
  Clock::duration patience = kFirstPatience;
  Clock::time_point give_up;  // of this attempt, until it is connected; or the end of a pause
  bool connected = false;     // then it waits for the Ack, until the deadline of all
  bool pausing = false;       // before the same address is tried again
  bool settled = false;
  UniqueFd socket;  // empty while pausing and once settled
  Hello hello;
  Ack ack;
  Welcome welcome;
  std::size_t received = 0;  // of the message that is its turn
  bool answered = false;     // the Ack: now the Welcome's
  bool ready = false;        // something to read, or connected at last
};

enum class Progress { pending, complete, failed };

/// Reads on into `message`; `failed` at end of file or error, with errno set (0 for end of file).
template <typename Message>
Progress read_on(int socket, Message& message, std::size_t& received) {
  while (received < sizeof(Message)) {
    const ssize_t n =
        recv(socket, reinterpret_cast<std::byte*>(&message) + received, sizeof(Message) - received, MSG_DONTWAIT);
    if (n > 0) {
      received += static_cast<std::size_t>(n);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return Progress::pending;
    } else {
      if (n == 0) errno = 0;
      return Progress::failed;
    }
  }
  return Progress::complete;
}

/// A message of a few bytes into an empty socket buffer: whole or not at all.
template <typename Message>
bool write_whole(int socket, const Message& message) {
  return send(socket, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof(message));
}

class Meeting {
 public:
  Meeting(TcpListener listener, const TcpOptions& options, const TcpIdentity& identity,
          std::span<const std::string> published, std::span<const std::uint32_t> remote,
          std::chrono::milliseconds timeout)
      : listener_(std::move(listener)),
        options_(options),
        identity_(identity),
        timeout_(timeout),
        deadline_(Clock::now() + timeout) {
    for (const std::uint32_t rank : remote) {
      peers_.push_back({.rank = rank, .endpoint = {}, .control = {}, .flows = {}});
      const TcpEndpoints theirs = endpoints_of(rank, published[rank]);
      peers_.back().flows.resize(options.flows > 0 ? options.flows : listener_.endpoints().flows_with(theirs));
      if (rank < identity.rank) plan_dials(peers_.back(), theirs);
    }
  }

  std::vector<TcpPeer> run() {
    for (Dial& dial : dials_) attempt(dial);
    if (failure_) throw *std::move(failure_);
    while (!complete()) {
      if (Clock::now() >= deadline_) throw late();
      wait();
      for (Guest& guest : guests_) {
        if (guest.ready) welcome(guest);
      }
      for (Dial& dial : dials_) {
        if (dial.ready) {
          advance(dial);
        } else if (!dial.connected && Clock::now() >= dial.give_up) {
          dial.pausing ? attempt(dial) : try_another(dial);
        }
      }
      if (failure_) throw *std::move(failure_);
      const Clock::time_point now = Clock::now();
      std::erase_if(guests_, [now](const Guest& guest) { return !guest.socket || now >= guest.deadline; });
      std::erase_if(dials_, &Dial::settled);
      for (const UniqueFd& socket : listener_.sockets()) receive_guests(socket.get());
      for (const TcpPeer* peer : stirring_) require_alive(*peer);
    }
    return std::move(peers_);
  }

 private:
  // ---- what is wanted

  [[nodiscard]] static TcpEndpoints endpoints_of(std::uint32_t rank, const std::string& published) {
    try {
      return TcpEndpoints::parse(published);
    } catch (const Error& error) {
      throw Error(Error::Kind::system, "rank " + std::to_string(rank) + " published no usable address: " + error.what(),
                  {static_cast<int>(rank)});
    }
  }

  void plan_dials(const TcpPeer& peer, const TcpEndpoints& theirs) {
    if (theirs.reachable_from(listener_.endpoints()).empty()) {
      throw Error(Error::Kind::system,
                  "rank " + std::to_string(peer.rank) +
                      " published no address that another machine can reach; is SYNTONY_SOCKET_IFNAME right there?",
                  {static_cast<int>(peer.rank)});
    }
    const std::size_t flows = peer.flows.size();
    for (std::size_t flow = 0; flow <= flows; ++flow) {
      Dial& dial = dials_.emplace_back();
      dial.rank = peer.rank;
      dial.flow = flow == flows ? kControlFlow : static_cast<std::uint16_t>(flow);
      // The control connection goes where the first data connection does.
      for (const TcpAddress& address : theirs.reachable_from(listener_.endpoints(), flow == flows ? 0 : flow)) {
        dial.candidates.push_back({address, {}});
      }
    }
  }

  [[nodiscard]] static std::size_t connections(const TcpPeer& peer) {
    const auto open = std::ranges::count_if(peer.flows, [](const UniqueFd& flow) { return static_cast<bool>(flow); });
    return static_cast<std::size_t>(open) + (peer.control ? 1 : 0);
  }

  [[nodiscard]] static std::size_t wanted(const TcpPeer& peer) { return peer.flows.size() + 1; }

  [[nodiscard]] TcpPeer& peer_of(std::uint32_t rank) { return *std::ranges::find(peers_, rank, &TcpPeer::rank); }

  [[nodiscard]] bool complete() const {
    return std::ranges::all_of(peers_, [](const TcpPeer& peer) { return connections(peer) == wanted(peer); });
  }

  [[nodiscard]] bool expects(std::uint32_t rank) const {
    return std::ranges::find(peers_, rank, &TcpPeer::rank) != peers_.end();
  }

  void settle(std::uint32_t rank, std::uint16_t flow, UniqueFd socket, const TcpAddress& address) {
    TcpPeer& peer = peer_of(rank);
    if (flow == kControlFlow) {
      tune_control_socket(socket.get(), options_);
      peer.endpoint = address.text();
      peer.control = std::move(socket);
    } else {
      tune_data_socket(socket.get(), options_);
      peer.flows[flow] = std::move(socket);
    }
  }

  // ---- receiving

  /// So many at once that those who are here already are not kept waiting.
  void receive_guests(int listening) {
    for (std::size_t turn = 0; turn < kMostGuests; ++turn) {
      sockaddr_storage from{};
      socklen_t length = sizeof(from);
      UniqueFd socket(accept4(listening, reinterpret_cast<sockaddr*>(&from), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) {
        // A connection that died in the queue (ECONNABORTED and its like) is no concern of ours; no descriptors is,
        // unless it is strangers that hold them.
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
          if (guests_.empty()) throw system_error("cannot accept a connection", errno);
          guests_.erase(guests_.begin());
          continue;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINVAL || errno == EBADF) return;
        continue;
      }
      const TcpAddress address = TcpAddress::from(reinterpret_cast<sockaddr*>(&from)).value_or(TcpAddress{});
      Guest guest{.socket = std::move(socket), .address = address, .deadline = Clock::now() + kLongestSilence};
      welcome(guest);  // a rank's Hello is usually there already
      if (!guest.socket) continue;
      if (guests_.size() == kMostGuests) {  // first those who have not said a right Hello
        const auto stranger = std::ranges::find(guests_, false, &Guest::challenged);
        guests_.erase(stranger != guests_.end() ? stranger : guests_.begin());
      }
      guests_.push_back(std::move(guest));
    }
  }

  /// A stranger is dropped without an answer, and who repeats what a rank once said after a first one.
  void welcome(Guest& guest) {
    if (!guest.challenged && !challenge(guest)) return;
    const Progress progress = read_on(guest.socket.get(), guest.answer, guest.received);
    if (progress == Progress::pending) return;
    const Hello& hello = guest.hello;
    if (progress == Progress::failed || guest.answer != answer_to(guest.ack, hello, identity_.token)) {
      return guest.socket.reset();
    }
    const TcpPeer& peer = peer_of(hello.from);
    const UniqueFd& before = hello.flow == kControlFlow ? peer.control : peer.flows[hello.flow];
    if (before && !end_of(before.get())) return fail(doubled(hello.from, before.get(), guest.address));
    if (!write_whole(guest.socket.get(), Welcome{})) return guest.socket.reset();
    settle(hello.from, hello.flow, std::move(guest.socket), guest.address);
  }

  /// Answers a right Hello, and asks for a proof that nobody can have recorded. False if it is not there yet, or wrong.
  bool challenge(Guest& guest) {
    const Progress progress = read_on(guest.socket.get(), guest.hello, guest.received);
    const Hello& hello = guest.hello;
    if (guest.received >= sizeof(hello.magic) && hello.magic != kHelloMagic) return guest.socket.reset(), false;
    if (progress == Progress::pending) return false;
    if (progress == Progress::failed || !admissible(hello, identity_) || !expects(hello.from)) {
      return guest.socket.reset(), false;
    }
    const auto flows = static_cast<std::uint32_t>(peer_of(hello.from).flows.size());
    const Ack ack{.flow = hello.flow, .nonce = random_token(), .from = identity_.rank, .flows = flows};
    guest.ack = proven(ack, identity_.token, hello.nonce);
    if (!write_whole(guest.socket.get(), guest.ack)) return guest.socket.reset(), false;
    if (hello.flows != flows) return fail(disagreement(hello.from, hello.flows, flows)), false;
    if (hello.flow != kControlFlow && hello.flow >= flows) return guest.socket.reset(), false;
    guest.received = 0;
    return guest.challenged = true;
  }

  /// The errno with which a connection broke, 0 when the other side closed it; empty while it stands.
  [[nodiscard]] static std::optional<int> end_of(int socket) {
    std::byte first{};
    const ssize_t n = recv(socket, &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0) return 0;
    if (n > 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return std::nullopt;
    return errno;
  }

  // ---- dialing

  void attempt(Dial& dial) {
    Candidate& candidate = dial.candidates[dial.current];
    dial.connected = dial.answered = dial.pausing = false;
    dial.received = 0;
    dial.give_up = Clock::now() + dial.patience;
    dial.socket = open_tcp_socket(candidate.address.family());
    size_buffers(dial.socket.get(), options_);
    if (connect(dial.socket.get(), candidate.address.get(), candidate.address.length()) != 0 && errno != EINPROGRESS &&
        errno != EINTR) {
      reject(dial, refusal(errno));
    }
  }

  [[nodiscard]] static std::string refusal(int error_number) {
    const bool refused = error_number == ECONNREFUSED;
    return std::string(refused ? "refused the connection" : "cannot be reached") + " (" + sentence_of(error_number) +
           ")";
  }

  /// The current address is out for good.
  void reject(Dial& dial, const std::string& why) {
    dial.candidates[dial.current].refusal = why;
    try_another(dial);
  }

  /// Whoever listens there has heard our Hello, or not even that, and hung up.
  void pause(Dial& dial, const std::string& why) {
    Candidate& candidate = dial.candidates[dial.current];
    if (++candidate.hang_ups == kMostHangUps) return reject(dial, why);
    dial.socket.reset();
    dial.connected = false;
    dial.pausing = true;
    dial.give_up = Clock::now() + kFirstPause * (1U << static_cast<unsigned>(candidate.hang_ups - 1));
  }

  void try_another(Dial& dial) {
    dial.socket.reset();
    const std::size_t count = dial.candidates.size();
    for (std::size_t step = 1; step <= count; ++step) {
      const std::size_t next = (dial.current + step) % count;
      if (!dial.candidates[next].refusal.empty()) continue;
      if (next <= dial.current) dial.patience *= 2;
      dial.current = next;
      return attempt(dial);
    }
    fail(unreachable(dial));
  }

  void advance(Dial& dial) {
    if (!dial.connected && !introduce(dial)) return;
    if (!dial.answered && !answer(dial)) return;
    const Progress progress = read_on(dial.socket.get(), dial.welcome, dial.received);
    if (progress == Progress::pending) return;
    if (progress == Progress::failed) return hung_up(dial);
    if (dial.welcome.magic != kWelcomeMagic) return reject(dial, kNoRank);
    settle(dial.rank, dial.flow, std::move(dial.socket), dial.candidates[dial.current].address);
    dial.settled = true;
  }

  /// What a read that failed with errno means.
  void hung_up(Dial& dial) {
    // NOLINTNEXTLINE(clang-analyzer-unix.Errno): read_on sets it, 0 where the other end has closed
    pause(dial, errno == 0 ? "closed the connection: its group has failed, or another group listens there"
                           : "broke the connection (" + sentence_of(errno) + ")");
  }

  /// Answers the Ack. False if it is not there yet, or wrong.
  bool answer(Dial& dial) {
    const Progress progress = read_on(dial.socket.get(), dial.ack, dial.received);
    if (progress == Progress::pending) return false;
    if (progress == Progress::failed) return hung_up(dial), false;
    const Ack& ack = dial.ack;
    if (ack.magic != kAckMagic || ack.version != kWireVersion ||
        ack.proof != proof_of(ack, identity_.token, dial.hello.nonce) || ack.from != dial.rank ||
        ack.flow != dial.flow) {
      return reject(dial, kNoRank), false;
    }
    const std::size_t flows = peer_of(dial.rank).flows.size();
    if (ack.flows != flows) return fail(disagreement(dial.rank, ack.flows, flows)), false;
    if (!write_whole(dial.socket.get(), answer_to(ack, dial.hello, identity_.token))) return hung_up(dial), false;
    dial.received = 0;
    return dial.answered = true;
  }

  /// Says Hello now that the connection stands. False if it does not.
  bool introduce(Dial& dial) {
    int failure = 0;
    socklen_t length = sizeof(failure);
    if (getsockopt(dial.socket.get(), SOL_SOCKET, SO_ERROR, &failure, &length) != 0) failure = errno;
    dial.hello = proven(Hello{.flow = dial.flow,
                              .nonce = random_token(),
                              .group = identity_.group,
                              .from = identity_.rank,
                              .to = dial.rank,
                              .flows = static_cast<std::uint32_t>(peer_of(dial.rank).flows.size())},
                        identity_.token);
    if (failure == 0 && !write_whole(dial.socket.get(), dial.hello)) failure = errno;
    if (failure != 0) reject(dial, refusal(failure));
    dial.connected = failure == 0;
    return dial.connected;
  }

  // ---- waiting

  /// Until something happens; then guests and dials know whether it concerns them, and stirring_ whom else.
  void wait() {
    Clock::time_point until = deadline_;
    polled_.clear();
    for (const UniqueFd& socket : listener_.sockets()) polled_.push_back({socket.get(), POLLIN, 0});
    for (const Guest& guest : guests_) {
      polled_.push_back({guest.socket.get(), POLLIN, 0});
      until = std::min(until, guest.deadline);
    }
    for (const Dial& dial : dials_) {
      polled_.push_back({dial.socket.get(), static_cast<short>(dial.connected ? POLLIN : POLLOUT), 0});
      if (!dial.connected) until = std::min(until, dial.give_up);
    }
    for (const TcpPeer& peer : peers_) polled_.push_back({peer.control.get(), POLLRDHUP, 0});  // -1 is passed over
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    const auto bounded = std::clamp<std::chrono::milliseconds::rep>(left.count(), 0, 60'000);
    if (poll(polled_.data(), polled_.size(), static_cast<int>(bounded)) < 0 && errno != EINTR) {
      throw system_error("cannot wait for connections", errno);
    }
    auto polled = polled_.cbegin() + static_cast<std::ptrdiff_t>(listener_.sockets().size());
    for (Guest& guest : guests_) guest.ready = (polled++)->revents != 0;
    for (Dial& dial : dials_) dial.ready = (polled++)->revents != 0;
    stirring_.clear();
    for (const TcpPeer& peer : peers_) {
      if ((polled++)->revents != 0) stirring_.push_back(&peer);
    }
  }

  /// A rank that is connected already but ends now will not come back: no need to wait for the deadline.
  void require_alive(const TcpPeer& peer) const {
    // Bytes to read are messages to this group: a goodbye, perhaps, of one that was faster than the others.
    const std::optional<int> end = end_of(peer.control.get());
    if (!end) return;
    std::vector<int> ranks{static_cast<int>(peer.rank)};
    std::string sentence = "rank " + std::to_string(peer.rank) + " at " + peer.endpoint +
                           " ended before the group was connected (" +
                           (*end == 0 ? std::string("it closed its connection") : sentence_of(*end)) + ")";
    const std::string others = missing(ranks);
    throw Error(Error::Kind::dead, others.empty() ? sentence : sentence + "; still missing: " + others, ranks);
  }

  /// Noted, and thrown when all connections have had their turn: a disagreement explains the others' ends, not the
  /// other way round.
  void fail(const Error& error) {
    if (!failure_ || error.kind() == Error::Kind::mismatch) failure_ = error;
  }

  // ---- sentences

  /// "rank 3 (1 of 3 connections), rank 4 (0 of 3 connections)"; their ranks are added to `ranks`.
  std::string missing(std::vector<int>& ranks) const {
    std::string sentence;
    for (const TcpPeer& peer : peers_) {
      const std::size_t open = connections(peer);
      if (open == wanted(peer)) continue;
      ranks.push_back(static_cast<int>(peer.rank));
      sentence += (sentence.empty() ? "rank " : ", rank ") + std::to_string(peer.rank);
      const auto dial = std::ranges::find(dials_, peer.rank, &Dial::rank);
      if (dial != dials_.end()) sentence += " at " + dial->candidates[dial->current].address.text();
      sentence += " (" + std::to_string(open) + " of " + std::to_string(wanted(peer)) + " connections)";
    }
    return sentence;
  }

  [[nodiscard]] Error late() const {
    std::vector<int> ranks;
    const std::string who = missing(ranks);
    return Error(
        Error::Kind::timeout,
        "no connection within " + std::to_string(timeout_.count()) + " ms with " + who + "; have they started?", ranks);
  }

  [[nodiscard]] static Error unreachable(const Dial& dial) {
    std::string sentence = "rank " + std::to_string(dial.rank);
    for (const Candidate& candidate : dial.candidates) {
      sentence += (&candidate == dial.candidates.data() ? " at " : "; at ") + candidate.address.text() + " " +
                  candidate.refusal;
    }
    return Error(Error::Kind::system, sentence + "; has its process ended, or does a firewall stand between?",
                 {static_cast<int>(dial.rank)});
  }

  [[nodiscard]] Error disagreement(std::uint32_t rank, std::uint32_t theirs, std::size_t ours) const {
    return Error(Error::Kind::mismatch,
                 "rank " + std::to_string(rank) + " opens " + std::to_string(theirs) + " data connections per pair, " +
                     "rank " + std::to_string(identity_.rank) + " opens " + std::to_string(ours) +
                     "; SYNTONY_TCP_FLOWS must be equal on all ranks",
                 {static_cast<int>(rank)});
  }

  [[nodiscard]] static Error doubled(std::uint32_t rank, int before, const TcpAddress& now) {
    return Error(Error::Kind::mismatch,
                 "two processes claim to be rank " + std::to_string(rank) + " of this group: one connected from " +
                     TcpAddress::remote(before).text() + ", another from " + now.text() +
                     "; every process needs a rank of its own",
                 {static_cast<int>(rank)});
  }

  TcpListener listener_;
  TcpOptions options_;
  TcpIdentity identity_;
  std::chrono::milliseconds timeout_;
  Clock::time_point deadline_;
  std::vector<TcpPeer> peers_;
  std::vector<Guest> guests_;
  std::vector<Dial> dials_;
  std::vector<pollfd> polled_;
  std::vector<const TcpPeer*> stirring_;  // connected peers whose control socket ended
  std::optional<Error> failure_;
};

}  // namespace

std::vector<TcpPeer> connect_mesh(TcpListener listener, const TcpOptions& options, const TcpIdentity& identity,
                                  std::span<const std::string> published, std::span<const std::uint32_t> remote,
                                  std::chrono::milliseconds timeout) {
  return Meeting(std::move(listener), options, identity, published, remote, timeout).run();
}

}  // namespace syntony
