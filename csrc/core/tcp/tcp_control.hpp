// The control plane (control.hpp) between machines: small connections, separate from the data.
//
//     up to 16 ranks: each with each            more: rank r with r +- 1, 2, 4, 8, .. (mod n); a rank tells its
//                                               neighbours what is new to it, so all know it after about log n steps
//
//  inquire {epoch, last started} ->                                       asked only when something is late
//               <- status {version; by priority: completed, last started}      again when the late one starts, unless
//                                                                              ranks relay: then they ask again
//  statuses {epoch; status, the ranks it is of; ..} ->                    if ranks relay (tcp_relays.cpp)
//  abort {kind, ranks at fault, message} ->                               the group has failed
//  post {number, text} ->                                                 ranks meet again (regroup.hpp)
//  leave {status} ->                                                      a goodbye: the end that follows is no death
//  dead {how} ->                                                          a neighbour's connection ended without one
//  call {rank, for what} ->                               it is asked to dial this one, which cannot dial it
//  ask_time {now} -> <- time {that, now, offset}                          clocks are compared (tcp_clock.cpp)
//
// Each message names the rank that it is about, and its first receiver can tell that it is new: statuses have versions,
// posts have numbers, inquiries epochs, and no rank ends twice. So messages may arrive along any number of paths, and
// deaths of some neighbours isolate nobody. If a rank's successor in the circle has gone, it connects to the next one
// that is alive, as soon as somebody has something to say, so the remaining ranks stay connected, whichever leave.
//
// announce() and complete() only store, and send nothing unless somebody waits for what starts; progress() answers
// inquiries. So a rank that is busy elsewhere answers as long as its progress engine watches descriptors(), a rank that
// is silent is stopped, and a rank that waits for another learns immediately what it starts.
//
// A rank is dead when one of its connections ends without `leave` and it accepts no other: immediately when its process
// dies, after about 10 s without a sign when its host vanishes (tcp_socket.hpp). One that accepts another was merely
// cut off, by a firewall perhaps, and is told what it may have missed. Invalid messages end the connection for good, as
// does a peer that keeps asking without reading the answers. A peer that left or died stays so.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/control.hpp"
#include "core/sizes.hpp"
#include "core/tcp/meeting/tcp_meeting.hpp"
#include "core/tcp/rank_set.hpp"
#include "core/tcp/tcp_message.hpp"

namespace syntony {

/// Not thread-safe: called by the owner of progress.
class TcpControl final : public ControlPlane {
 public:
  /// How many of its own operations a rank remembers per priority. If it relays, it remembers the last kRelayed of
  /// other ranks.
  static constexpr std::size_t kRemembered = 16;
  static constexpr std::size_t kRelayed = 2;

  /// The ranks with which `rank` of `ranks` has a control connection; `remote` are the ranks on other machines.
  [[nodiscard]] static std::vector<std::uint32_t> neighbours(std::uint32_t rank, std::uint32_t ranks,
                                                             std::span<const std::uint32_t> remote);

  /// Takes the control sockets of `neighbours`, and reports on `remote` (default: the neighbours). `meeting` must
  /// outlive this and is served by progress(), so ranks that dial this one are let in while it does something else.
  /// Throws Error(system).
  TcpControl(const GroupIdentity& identity, std::span<TcpPeer> neighbours, TcpMeeting* meeting = nullptr,
             std::span<const std::uint32_t> remote = {});

  [[nodiscard]] std::span<const std::uint32_t> peers() const override { return ranks_; }
  void announce(const Descriptor& started) override;
  void complete(Priority priority, std::uint64_t sequence) override { completed_[index_of(priority)] = sequence; }
  /// A neighbour that has not answered yet is not asked again; with many ranks, inquiries are less frequent.
  void inquire() override;
  /// As of the peer's last answer. Throws Error(invalid) for a rank that is not among the peers; so do the next three.
  [[nodiscard]] PeerStatus status(std::uint32_t peer) const override;
  [[nodiscard]] std::size_t ended() const override { return ended_; }
  [[nodiscard]] std::optional<Descriptor> announced(std::uint32_t peer, Priority priority,
                                                    std::uint64_t sequence) const override;
  [[nodiscard]] std::optional<Descriptor> announced(std::uint32_t peer, std::uint64_t ordinal) const override;
  /// How a peer ended, as a phrase to follow its name: "lost its connection (Connection reset by peer)". Empty while
  /// alive.
  [[nodiscard]] std::string end_of(std::uint32_t peer) const override;
  [[nodiscard]] std::optional<std::uint64_t> news() const override { return news_; }
  void abort(const Abort& reason) override;
  [[nodiscard]] std::optional<Abort> aborted() const override { return aborted_; }
  void post(std::uint64_t number, std::string_view message) override;
  [[nodiscard]] std::optional<std::string> posted(std::uint32_t peer, std::uint64_t number) const override;
  /// Waits, at most a second and usually microseconds, until the peers' kernels have the goodbye, so that closing the
  /// sockets afterwards cannot overtake it.
  void leave() override;
  void progress() override;
  /// One epoll set over all connections.
  [[nodiscard]] std::span<const int> descriptors() const override { return {&descriptor_, 1}; }

  /// Begins to compare this rank's clock with rank 0's; progress() does the rest. Call once.
  void compare_clocks();
  /// Nanoseconds to add to nanoseconds_now() to get rank 0's; 0 until something is known. Any thread may read it.
  [[nodiscard]] std::shared_ptr<const std::atomic<std::int64_t>> clock_offset() const { return time_.offset; }

 private:
  using Kind = ControlPrefix::Kind;
  using Clock = std::chrono::steady_clock;
  using Post = std::pair<std::uint64_t, std::string>;  // number, text
  /// A rank's status, stored once even if many ranks report the same.
  struct Said {
    ControlStatus status;
    std::vector<std::byte> bytes;  // encoded for the wire
  };
  using Held = std::shared_ptr<const Said>;
  struct Edge {
    Edge(std::uint32_t other, std::uint32_t ranks) : rank(other), news(ranks), gone(ranks) {}
    std::uint32_t rank;
    TcpStream socket;
    std::vector<std::byte> inbox;            // bytes of an incomplete message
    std::vector<std::byte> outbox;           // bytes the socket has not taken
    bool blocked = false;                    // the kernel accepts no more for now
    bool asked = false;                      // an inquiry is open
    std::optional<std::int64_t> time_asked;  // its question for the time, not answered yet
    // If ranks relay:
    bool listens = false;        // it is told the statuses heard in this epoch
    std::size_t unanswered = 0;  // bytes sent to it since it last said anything
    RankSet news;                // ranks whose last status it may not know
    RankSet gone;                // ranks whose goodbye it may not know
    [[nodiscard]] bool unsent() const { return !outbox.empty() || socket.pending(); }
  };
  /// A silent neighbour, perhaps a stopped rank, is sent no more than its kernel is sure to accept: a connection whose
  /// window stays shut counts as dead.
  static constexpr std::size_t kMostUnanswered = 32_KiB;
  using Posts = std::array<Post, kPostSlots>;
  struct Time {
    std::shared_ptr<std::atomic<std::int64_t>> offset = std::make_shared<std::atomic<std::int64_t>>(0);
    bool known = false;                 // the offset is final
    std::optional<std::uint32_t> from;  // the neighbour that was asked last
    std::int64_t asked = 0;             // when
    int answers = 0;
    std::int64_t soonest = std::numeric_limits<std::int64_t>::max();  // how long the fastest answer took
  };

  [[nodiscard]] const Held& said_by(std::uint32_t rank) const;
  [[nodiscard]] Held own_status();
  /// Tells all neighbours but one.
  void flood(Kind kind, std::uint32_t of, std::span<const std::byte> body, const Edge* except = nullptr);
  void send(Edge& edge, Kind kind, std::uint32_t of, std::span<const std::byte> body);
  void write(Edge& edge);
  void listen();
  void read(Edge& edge);
  /// Takes all complete messages from the inbox. False if one is invalid.
  [[nodiscard]] bool take_messages(Edge& edge);
  [[nodiscard]] bool take(Edge& edge, const ControlPrefix& prefix, std::span<const std::byte> body);
  [[nodiscard]] bool has_room(Edge& edge);
  [[nodiscard]] bool take_inquiry(Edge& edge, std::span<const std::byte> body);
  [[nodiscard]] bool take_status(Edge& edge, std::span<const std::byte> body, bool last);
  [[nodiscard]] bool take_post(Edge& edge, std::uint32_t of, std::span<const std::byte> body);
  void ask_for_calls();
  [[nodiscard]] bool take_call(Edge& edge, std::uint32_t of, std::span<const std::byte> body);
  void ask(const Edge* except);
  void ask(Edge& edge);
  /// The other end, or something between, has ended its connection.
  void cut(Edge& edge, const std::string& how);
  /// Its connection has ended; without a goodbye it is dead, unless another connection is being made.
  void lose(Edge& edge, const std::string& how);
  void close(Edge& edge);
  void die(std::uint32_t rank, const std::string& how);
  void end(std::uint32_t rank, PeerStatus::State state, std::string how);
  [[nodiscard]] Held held(std::span<const std::byte> bytes);
  /// Records a rank's status, received from a neighbour or, if that is null, from this rank itself.
  void hear(std::uint32_t rank, const Held& said, Edge* from);

  Edge& join(std::uint32_t rank, TcpStream socket);

  // Clocks (tcp_clock.cpp).
  void ask_time();
  void tell_time(Edge& edge);
  void know_time();
  [[nodiscard]] bool take_time_question(Edge& edge, std::span<const std::byte> body);
  [[nodiscard]] bool take_time(const Edge& edge, std::span<const std::byte> body);

  // If not every rank is a neighbour (tcp_relays.cpp).
  void begin_epoch(std::uint64_t epoch, Edge* asker);
  void renew();
  void part(std::uint32_t rank, const Edge* from);
  void tell();
  void tell(Edge& edge);
  void tell(Edge& edge, RankSet& whom, bool left);
  [[nodiscard]] bool take_statuses(Edge& edge, std::span<const std::byte> body);
  void close_ranks();
  void receive();
  void catch_up(Edge& edge);

  GroupIdentity identity_;
  TcpMeeting* meeting_;
  UniqueFd epoll_;
  int descriptor_ = -1;
  std::vector<std::uint32_t> ranks_;
  std::vector<Edge> edges_;
  std::vector<Held> said_;                                 // by rank, the whole group's last statuses, or empty
  std::vector<PeerStatus::State> states_;                  // likewise
  RankSet remote_;                                         // ranks_
  std::map<std::uint32_t, Posts> posts_;                   // of ranks that have posted
  std::map<std::uint32_t, std::string> ends_;              // of ranks that have ended: how
  std::size_t ended_ = 0;                                  // how many of them are remote
  std::vector<Held> lately_;                               // the last statuses heard, each once
  std::set<std::pair<std::uint32_t, CallRequest>> calls_;  // passed on, by who asks
  bool relays_ = false;                                    // not every rank is a neighbour
  bool frayed_ = false;                                    // a neighbour has gone, perhaps the successor in the circle
  std::optional<std::uint32_t> called_;                    // the rank dialed in its place
  std::map<std::uint32_t, std::string> between_;           // connections lost whose successors are being made: how
  RankSet unreached_;                                      // ranks that could not be reached
  bool reading_ = false;                                   // inside listen(): messages are sent together afterwards
  std::vector<Descriptor> started_;  // the last kRemembered of each priority of this rank, oldest first
  std::array<std::uint64_t, kPriorities> completed_{};
  std::uint64_t version_ = 0;  // of our last status
  std::uint64_t epoch_ = 0;    // of the last inquiry, ours or not
  RankSet fresh_;              // ranks that have answered in it
  Clock::time_point epoch_began_;
  Clock::time_point epoch_heard_;  // the last answer in it
  Time time_;
  bool curious_ = false;          // somebody waits for what this rank starts next
  std::optional<Abort> aborted_;  // the first one, by this rank or by a peer
  bool told_ = false;             // whether it was sent to all neighbours
  std::uint64_t news_ = 0;
};

}  // namespace syntony
