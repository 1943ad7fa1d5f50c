// How ranks of a group on different machines are connected:
//
//     rank 0        rank 1        rank 2          while the group forms, for every pair of neighbours (as defined by
//    accepts <====== dials                        TcpControl) the lower rank accepts and the higher dials one control
//    accepts <==================== dials          socket
//                  accepts <====== dials
//     dials ======> accepts                       later, the first to have data for the other dials `flows` data
//                                                 sockets; if both do at once, those of the higher rank count
//
// A host behind a firewall or address translation can perhaps dial, but not be dialed. So a rank that has waited in
// vain for a higher neighbour to dial does so itself; and once the group has formed, one that gets through to another
// at none of its addresses asks to be dialed, over the control plane (take_requests()). If both then dial, the higher
// rank's sockets count if its Hello has left it, and else the lower's: each rank sees which.
//
// So a rank has data sockets only to its neighbours in the algorithms that run. The data sockets of a pair are
// numbered; one that takes the place of a lost one (tcp_replacements.cpp) has its number plus `flows`. Every socket is
// opened by a handshake that proves both ends to belong to this group. One epoll set handles everything concurrently. A
// peer that sends anything but a valid Hello is dropped without an answer and never disturbs the others: silent ones
// after a few seconds, or earlier if many wait. A rank dropped among them dials again. If a rank has several addresses,
// each is tried.
//
// A group's use of it:
//
//   const TcpOptions options = TcpOptions::from_environment();
//   TcpListener listener(options);
//   const std::vector<std::string> published = bootstrap.all_gather("tcp", listener.published());
//   const GroupIdentity identity{.token = token, .group = 7, .rank = bootstrap.rank(), .ranks = bootstrap.size()};
//   TcpMeeting meeting(std::move(listener), options, identity, published, others, std::chrono::seconds(30));
//   std::vector<TcpPeer> peers = meeting.connect_control(neighbours);
//   TcpTransport transport(shape, identity, peers, &meeting, remote_ranks);  // requests data sockets when needed
//   TcpControl control(identity, peers, &meeting, remote_ranks);             // takes the control sockets
//
//   Sender& sender = transport.sender(peer, channel, window);
//   if (std::byte* room = sender.reserve(bytes)) {
//     std::memcpy(room, data, bytes);
//     sender.commit({.token = identity.frame_token(), .group = identity.group, .channel = channel, .length = bytes});
//   }
//   while (transport.progress()) {
//   }
//   Receiver& receiver = transport.receiver(peer, channel, window);
//   if (const FrameHeader* header = receiver.front()) {
//     use(receiver.payload(), header->length);
//     receiver.release();
//   }
//   ...
//   transport.drain(std::chrono::seconds(1));  // in this order: what was sent arrives, then the goodbye,
//   control.leave();                           // then the destructors close the sockets
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/tcp/meeting/tcp_directory.hpp"
#include "core/tcp/meeting/tcp_listener.hpp"
#include "core/tcp/rank_set.hpp"
#include "core/tcp/tcp_stream.hpp"
#include "core/tcp/tcp_wire.hpp"

namespace syntony {

/// The sockets to one rank.
struct TcpPeer {
  std::uint32_t rank = 0;
  std::string endpoint;  // its end of the control connection, for messages
  TcpStream control;
  std::vector<TcpStream> flows;  // empty if data sockets are made when first needed
};

/// One socket, opened by a handshake.
struct TcpArrival {
  std::uint32_t rank = 0;
  std::uint16_t flow = 0;  // its number, or kControlFlow
  TcpStream socket;
  std::string endpoint;  // its other end
  bool dialed = false;   // by this rank
};

/// What this rank asks of another that it cannot dial itself.
struct TcpRequest {
  std::uint32_t rank = 0;
  bool control = false;  // to dial for a control connection, not for data
};

/// Not thread-safe: used by its creator while the group forms, then by the owner of progress.
class TcpMeeting {
 public:
  /// Between this rank and `others` of the group, which must do the same at the same time. `published[r]` is the value
  /// of rank r's TcpListener::published(); entries of ranks not in `others` are not read. An invalid entry becomes an
  /// Error(system) of the first call that needs it.
  TcpMeeting(TcpListener listener, TcpOptions options, const GroupIdentity& identity,
             std::span<const std::string> published, std::span<const std::uint32_t> others,
             std::chrono::milliseconds timeout);
  ~TcpMeeting();
  TcpMeeting(const TcpMeeting&) = delete;
  TcpMeeting& operator=(const TcpMeeting&) = delete;

  /// Waits for the control sockets of `neighbours` (a subset of `others`, which count this rank among theirs), and
  /// returns them in rank order. Throws Error naming the ranks: `system` if one has no address or cannot be reached at
  /// any, `dead` if one ended meanwhile, `mismatch` if SYNTONY_TCP_FLOWS differ or two processes claim to be the same
  /// rank, `timeout` for missing ranks.
  [[nodiscard]] std::vector<TcpPeer> connect_control(std::span<const std::uint32_t> neighbours);

  /// Data sockets per pair.
  [[nodiscard]] std::size_t flows_with(std::uint32_t rank) { return pair_of(rank).flows; }
  /// Begins to make the data sockets to a rank, unless either side has begun already. Throws Error(system) for a rank
  /// that published no address.
  void call(std::uint32_t rank);
  /// Begins to make a control socket to a rank that was not a neighbour when the group formed.
  void call_control(std::uint32_t rank);
  /// The control socket to this rank has been cut: begins to make another, if the rank still listens. take_unreached()
  /// says at the latest after two seconds if it does not.
  void call_control_again(std::uint32_t rank);
  /// What this rank sends from this address is lost: control connections from there are made anew, beginning with the
  /// addresses of others that data socket `instead` uses.
  void avoid(const TcpAddress& local, std::size_t instead);
  /// Data socket `number` of the pair is lost, whose end here was `local`: another takes its place as soon as one can
  /// be made between the same network cards. The rank that has dialed the first ones dials; the other expects that.
  void replace(std::uint32_t rank, std::uint16_t number, const TcpAddress& local);
  /// Dials what is due. To be called now and then while data moves: what is lost costs an idle group nothing.
  void dial_replacements();
  /// True while a control connection to this rank is being made, or waits in take_controls().
  [[nodiscard]] bool makes_control(std::uint32_t rank) const;
  /// Makes the sockets that a rank asks for because it cannot dial this one.
  void call_back(std::uint32_t rank, bool control);
  /// Which ranks to ask to dial this one, since the last call; each appears once.
  [[nodiscard]] std::vector<TcpRequest> take_requests() { return std::exchange(requests_, {}); }
  /// Nobody is left to ask.
  void refuse_request(const TcpRequest& request);
  /// Continues with connections being made, and serves ranks that dial us. Non-blocking. Never throws: the control
  /// plane, which calls it for ranks that move no data, has nobody to tell.
  void progress();
  /// What the system refused to progress(), which does nothing from then on.
  [[nodiscard]] const std::optional<Error>& broken_by() const { return broken_by_; }
  /// progress() must be called repeatedly, even without events.
  [[nodiscard]] bool calling() const { return !dials_.empty(); }
  /// Data sockets made since the last call.
  [[nodiscard]] std::vector<TcpArrival> take_arrivals() { return std::exchange(arrivals_, {}); }
  /// Control sockets made since the last call, whoever dialed; and the ranks to which none could be made.
  [[nodiscard]] std::vector<TcpArrival> take_controls() { return std::exchange(controls_, {}); }
  [[nodiscard]] std::vector<std::uint32_t> take_unreached() { return std::exchange(unreached_, {}); }
  /// Why data sockets could not be made since the last call; each names one rank.
  [[nodiscard]] std::vector<Error> take_failures() { return std::exchange(failures_, {}); }
  /// Readable when progress() has something to do.
  [[nodiscard]] int descriptor() const { return epoll_.get(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Guest;
  struct Candidate;
  struct Dial;
  enum class Link : std::uint8_t { none, ours, theirs, failed };  // whose dial makes, or has made, the data sockets
  /// The place of a data socket that is lost.
  struct Vacancy {
    std::uint16_t number = 0;  // of the socket that will take it
    TcpAddress from;           // this rank's end, without a port
    Clock::time_point due;     // when to dial; max() meanwhile
    Clock::duration pause;     // before that
  };
  struct Pair {
    std::uint32_t rank = 0;
    std::uint16_t flows = 0;
    std::uint16_t met = 0;    // first data sockets that are or were connected
    bool neighbour = false;   // connect_control() waits for its control socket
    bool control = false;     // it is connected
    TcpAddress control_from;  // this rank's end of it
    Link link = Link::none;
    std::vector<Vacancy> vacancies;

    /// True if a socket of this number can only take the place of a lost one.
    [[nodiscard]] bool replaces(std::uint16_t number) const { return number != kControlFlow && number >= flows; }
  };

  // The meeting (tcp_meeting.cpp).
  [[nodiscard]] TcpEndpoints endpoints_of(std::uint32_t rank) const;
  /// Throws Error(system) if no address of the rank is usable.
  [[nodiscard]] TcpEndpoints dialable(std::uint32_t rank) const;
  [[nodiscard]] Pair& pair_of(std::uint32_t rank);
  [[nodiscard]] bool expects(std::uint32_t rank) const;
  [[nodiscard]] bool complete() const;
  void serve(int milliseconds);
  [[nodiscard]] bool look(int milliseconds);
  void note(int descriptor);
  void settle(std::uint32_t rank, const Hello& hello, const Ack& ack, UniqueFd socket, const TcpAddress& address,
              bool dialed);
  void forget(const TcpArrival& arrival);
  void watch(int socket, std::uint32_t events, bool fresh = true) const;
  void drop(UniqueFd& socket) const;
  void require_alive(const TcpArrival& control) const;
  void fail(std::uint32_t rank, const Error& error);
  void fail(Dial& dial, const Error& error);
  [[nodiscard]] std::string missing(std::vector<int>& ranks) const;
  [[nodiscard]] Error late() const;
  [[nodiscard]] Error disagreement(std::uint32_t rank, std::uint32_t theirs, std::size_t ours) const;

  // Receiving (tcp_guests.cpp).
  [[nodiscard]] bool receive_guests(int listening);
  void welcome(Guest& guest);
  [[nodiscard]] bool challenge(Guest& guest);
  [[nodiscard]] bool comes_first(Guest& guest);
  [[nodiscard]] bool ours_count(const Hello& hello);

  // Replacing lost data sockets (tcp_replacements.cpp).
  [[nodiscard]] static std::vector<Vacancy>::iterator vacancy(Pair& pair, std::uint16_t number);
  [[nodiscard]] bool admits(Guest& guest);
  void cancel_replacement(std::uint32_t rank, std::uint16_t flow);
  void postpone(Dial& dial);

  // Dialing (tcp_dials.cpp).
  Dial& plan_dial(std::uint32_t rank, std::uint16_t flow, const TcpEndpoints& theirs, Clock::time_point deadline,
                  std::optional<std::size_t> rail = std::nullopt);
  void call(std::uint32_t rank, bool called_back);
  void call_control(std::uint32_t rank, bool called_back, std::size_t rail, std::chrono::milliseconds patience);
  void call_higher();
  void cancel_dials(std::uint32_t rank, bool control);
  void ask_to_be_called(Dial& dial);
  [[nodiscard]] Clock::duration patience_with_calls() const;
  void go_on(Dial& dial, Clock::time_point now);
  void attempt(Dial& dial);
  void reject(Dial& dial, const std::string& why);
  void pause(Dial& dial, const std::string& why);
  void try_another(Dial& dial);
  void hung_up(Dial& dial);
  void advance(Dial& dial);
  [[nodiscard]] bool introduce(Dial& dial);
  [[nodiscard]] bool answer(Dial& dial);
  [[nodiscard]] Error unreachable(const Dial& dial) const;
  [[nodiscard]] Error unanswered(const Dial& dial) const;

  TcpListener listener_;
  TcpOptions options_;
  GroupIdentity identity_;
  RankSet others_;
  TcpDirectory directory_;
  std::chrono::milliseconds timeout_;
  UniqueFd epoll_;
  bool forming_ = false;                 // inside connect_control()
  std::map<std::uint32_t, Pair> pairs_;  // by rank: neighbours and others that this rank has dealt with
  std::vector<Guest> guests_;
  std::vector<Dial> dials_;
  std::vector<TcpArrival> arrivals_;
  std::vector<TcpArrival> controls_;  // since the group has formed
  std::vector<std::uint32_t> unreached_;
  std::vector<TcpRequest> requests_;
  std::vector<Error> failures_;
  std::optional<Error> broken_by_;
  std::vector<int> knocking_;  // listening sockets with pending connections
  std::vector<int> stirring_;  // while forming: control sockets that may have ended
};

}  // namespace syntony
