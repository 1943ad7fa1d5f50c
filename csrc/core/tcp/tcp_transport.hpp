// Transport (transport.hpp) over TCP: to each rank of another machine several sockets, over which the frames of a
// stream are spread, so that one connection's window or one core's interrupt is not the limit.
//
//      TcpTransport -- TcpLink (one per neighbour) -- TcpFlow (one per socket)
//                                            \-- FrameSender, FrameReceiver (one per stream in use)
//
// One epoll set inside, edge-triggered, tells which sockets are worth a system call, so that an idle progress() costs
// one; and the set itself is the only descriptor that the owner has to watch, for reading.
//
// A rank becomes a neighbour when a stream to or from it is asked for, and is connected when one of both sends.
//
// progress() throws Error(dead) when frames are lost because a connection is (frame_link.hpp says when exactly) and
// Error(mismatch) when a peer sends what cannot be believed: once for each peer, after everything else was served. That
// a peer is gone while nothing was to be sent to it is for TcpControl to tell.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/recorder/wires.hpp"
#include "core/tcp/meeting/tcp_meeting.hpp"
#include "core/tcp/tcp_link.hpp"

namespace syntony {

class TcpTransport final : public Transport {
 public:
  /// To `remote`, which are `peers` unless said. Takes the data sockets of `peers`, where they have any; the others
  /// `meeting` makes, which outlives this.
  /// Throws Error(system).
  TcpTransport(const StreamShape& shape, const GroupIdentity& identity, std::span<TcpPeer> peers,
               TcpMeeting* meeting = nullptr, std::span<const std::uint32_t> remote = {});

  /// Throws Error(invalid) for a rank that is not among the peers, and std::out_of_range for a channel or window that
  /// the shape has not.
  [[nodiscard]] Sender& sender(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) override;
  [[nodiscard]] Receiver& receiver(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) override;
  [[nodiscard]] bool heard_from(std::uint32_t peer) const override { return link_of_rank_.at(peer) < kStranger; }
  bool progress() override;
  /// Hands to the kernel what was committed or released; it wakes the peers. Faults wait for progress().
  void wake() override;
  void sleeping(bool) override {}
  [[nodiscard]] std::span<const int> descriptors() const override { return {&descriptor_, 1}; }
  [[nodiscard]] bool unsent() const override;
  [[nodiscard]] std::shared_ptr<Wires> wires() const override { return wires_; }

  /// Before closing: makes progress until everything sent has reached the peers' kernels, which a close could otherwise
  /// tear down with it. False when `timeout` passed first or a fault came up.
  bool drain(std::chrono::milliseconds timeout) override;

 private:
  struct FlowPlace {
    std::uint32_t link;
    std::uint32_t flow;
  };

  static constexpr std::uint32_t kNoLink = 0xffffffff;    // not made yet
  static constexpr std::uint32_t kStranger = 0xfffffffe;  // TCP does not reach it
  static constexpr FlowPlace kMeeting{kNoLink, kNoLink};  // the meeting's mark in the epoll set

  [[nodiscard]] TcpLink& link_to(std::uint32_t peer);
  TcpLink& make_link(std::uint32_t peer, std::size_t flows);
  void open(TcpLink& link, std::size_t flow, UniqueFd socket, std::string endpoint);
  void meet();
  bool write_all();
  void notice_events();

  StreamShape shape_;
  GroupIdentity identity_;
  TcpMeeting* meeting_;
  std::shared_ptr<Wires> wires_ = std::make_shared<Wires>();
  UniqueFd epoll_;
  int descriptor_ = -1;
  std::vector<std::unique_ptr<TcpLink>> links_;
  std::vector<std::uint32_t> link_of_rank_;  // index into links_, or one of the above
  std::vector<FlowPlace> readable_;          // flows worth reading
  TcpFlow::Aside aside_{};                   // theirs
  bool knocked_ = false;                     // something concerns the meeting
};

}  // namespace syntony
