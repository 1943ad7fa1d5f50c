// The control plane (control.hpp) between machines: one small connection per pair, apart from the data.
//
//   inquire ->   <- status {by priority: completed, last 16 started}           asked only when something is late
//                <- status                                                  again when the asked rank's next one starts
//   abort {kind, guilty ranks, sentence} ->                                 the group has failed
//   post {number, text} ->                                                  ranks meet again (regroup.hpp)
//   leave ->                                                                a goodbye: what follows is no death
//
// announce() and complete() store, and send nothing but to those who have asked since the last operation;
// progress() answers those who ask. So a rank that is busy elsewhere answers as long as its progress engine watches
// descriptors(), a rank that is silent is stopped, and who waits for a rank learns at once what it comes with.
//
// A rank is dead when its connection ends without `leave`: at once when its process dies, after about 10 s without
// a sign when its host vanishes (tcp_socket.hpp). What cannot be believed ends the connection too, and so does a peer
// that asks and asks without reading the answers. A peer that left or died stays so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/control.hpp"
#include "core/tcp/meeting/tcp_meeting.hpp"

namespace syntony {

/// Not thread-safe: whoever owns progress calls it.
class TcpControl final : public ControlPlane {
 public:
  /// How many of its own operations of each priority a rank remembers.
  static constexpr std::size_t kRemembered = 16;

  /// Takes the control sockets of `peers`. `meeting`, which outlives this, is served by progress(): so whoever dials
  /// this rank is let in while it does something else. Throws Error(system).
  TcpControl(const TcpIdentity& identity, std::span<TcpPeer> peers, TcpMeeting* meeting = nullptr);

  [[nodiscard]] std::span<const std::uint32_t> peers() const override { return ranks_; }
  void announce(const Descriptor& started) override;
  void complete(Priority priority, std::uint64_t sequence) override { completed_[index_of(priority)] = sequence; }
  /// A peer that has not answered yet is not asked again.
  void inquire() override;
  /// As of the peer's last answer. Throws Error(invalid) for a rank that is not among the peers; so do the next three.
  [[nodiscard]] PeerStatus status(std::uint32_t peer) const override;
  [[nodiscard]] std::optional<Descriptor> announced(std::uint32_t peer, Priority priority,
                                                    std::uint64_t sequence) const override;
  [[nodiscard]] std::optional<Descriptor> announced(std::uint32_t peer, std::uint64_t ordinal) const override;
  /// How a peer ended, to follow its name: "lost its connection (Connection reset by peer)". Empty while it lives.
  [[nodiscard]] std::string end_of(std::uint32_t peer) const override;
  void abort(const Abort& reason) override;
  [[nodiscard]] std::optional<Abort> aborted() const override { return aborted_; }
  void post(std::uint64_t number, std::string_view message) override;
  [[nodiscard]] std::optional<std::string> posted(std::uint32_t peer, std::uint64_t number) const override;
  /// Waits, a second at most and usually microseconds, until the peers' kernels have the goodbye, so that closing the
  /// sockets afterwards cannot overtake it.
  void leave() override;
  void progress() override;
  /// One epoll set over all connections.
  [[nodiscard]] std::span<const int> descriptors() const override { return {&descriptor_, 1}; }

 private:
  struct Peer {
    std::uint32_t rank = 0;
    std::string endpoint;
    UniqueFd socket;
    std::vector<std::byte> inbox;   // bytes of a message that is not complete
    std::vector<std::byte> outbox;  // bytes the kernel has not taken
    bool asked = false;             // an inquiry is open
    bool curious = false;           // it has asked since our last operation started
    PeerStatus status;
    std::vector<Descriptor> started;                                      // as of its last answer, oldest first
    std::array<std::pair<std::uint64_t, std::string>, kPostSlots> posts;  // number, text
    std::string end;
  };

  [[nodiscard]] const Peer& peer_of(std::uint32_t rank) const;
  void send(Peer& peer, ControlPrefix::Kind kind, std::span<const std::byte> body = {});
  void write(Peer& peer);
  void read(Peer& peer);
  /// Takes all whole messages from the inbox. False when one cannot be believed.
  [[nodiscard]] bool take_messages(Peer& peer);
  [[nodiscard]] bool take(Peer& peer, ControlPrefix::Kind kind, std::span<const std::byte> body);
  [[nodiscard]] bool take_status(Peer& peer, std::span<const std::byte> body);
  [[nodiscard]] static bool take_post(Peer& peer, std::span<const std::byte> body);
  void answer(Peer& peer);
  void finish(Peer& peer, PeerStatus::State state, std::string end);

  TcpIdentity identity_;
  TcpMeeting* meeting_;
  UniqueFd epoll_;
  int descriptor_ = -1;
  std::vector<std::uint32_t> ranks_;
  std::vector<Peer> peers_;
  std::vector<Descriptor> started_;  // the last kRemembered of each priority of this rank, oldest first
  std::array<std::uint64_t, kPriorities> completed_{};
  bool curious_ = false;          // any peer is
  std::optional<Abort> aborted_;  // told by us or by a peer, the first
  bool told_ = false;             // it, to all peers
};

}  // namespace syntony
