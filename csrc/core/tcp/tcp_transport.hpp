// Transport (transport.hpp) over TCP: to each rank on another machine several sockets, over which the frames of a
// stream are spread, so that neither one connection's window nor one core's interrupts are the limit.
//
//      TcpTransport -- TcpLink (one per neighbour) -- TcpFlow (one per socket)
//                                            \-- FrameSender, FrameReceiver (one per stream in use)
//
// An edge-triggered epoll set inside tells which sockets are worth a system call, so an idle progress() costs one; the
// set itself is the only descriptor that the owner has to watch, for reading. A rank that is awake reads its sockets
// without asking first if they are few (asks_directly). So sleeping(true) comes before the progress() whose `false`
// means that only the descriptor can tell of anything new.
//
// A rank becomes a neighbour when a stream to or from it is requested, and is connected when either of the two sends.
//
// progress() throws Error(dead) if frames are lost with a connection (frame_link.hpp says when exactly) and
// Error(mismatch) if a peer sends something invalid: once per peer, after everything else was served. A peer that is
// gone while nothing was to be sent to it is reported by TcpControl.
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
  /// To `remote` (default: `peers`). Takes the data sockets of `peers`, if they have any; the others are made by
  /// `meeting`, which must outlive this. Throws Error(system).
  TcpTransport(const StreamShape& shape, const GroupIdentity& identity, std::span<TcpPeer> peers,
               TcpMeeting* meeting = nullptr, std::span<const std::uint32_t> remote = {});

  /// Throws Error(invalid) for a rank that is not among the peers, and std::out_of_range for a channel or window beyond
  /// the shape.
  [[nodiscard]] Sender& sender(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) override;
  [[nodiscard]] Receiver& receiver(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) override;
  [[nodiscard]] bool heard_from(std::uint32_t peer) const override { return link_of_rank_.at(peer) < kStranger; }
  bool progress() override;
  /// Hands what was committed or released to the kernel, which wakes the peers. Faults are left to progress().
  void wake() override;
  void sleeping(bool asleep) override;
  [[nodiscard]] std::vector<Error> ended() const override { return ended_of(links_); }
  [[nodiscard]] std::span<const int> descriptors() const override { return {&descriptor_, 1}; }
  [[nodiscard]] bool unsent() const override;
  [[nodiscard]] std::shared_ptr<Wires> wires() const override { return wires_; }

  /// Before closing: makes progress until everything sent has reached the peers' kernels, because closing could
  /// otherwise discard it. False if `timeout` passed first or a fault occurred.
  bool drain(std::chrono::milliseconds timeout) override;

 private:
  struct FlowPlace {
    std::uint32_t link;
    std::uint32_t flow;
  };

  static constexpr std::uint32_t kNoLink = 0xffffffff;    // not made yet
  static constexpr std::uint32_t kStranger = 0xfffffffe;  // not reached by TCP
  static constexpr FlowPlace kMeeting{kNoLink, kNoLink};  // marks in the epoll set: of the meeting,
  static constexpr FlowPlace kClock{kNoLink, 0};          // and of the timer

  [[nodiscard]] TcpLink& link_to(std::uint32_t peer);
  TcpLink& make_link(std::uint32_t peer, std::size_t flows);
  void open(TcpLink& link, std::uint16_t number, TcpStream socket, std::string endpoint);
  void meet();
  bool write_all();
  bool pay_late();
  bool pay_now();
  [[nodiscard]] bool asks_directly();
  void ask_all();
  void notice_events();
  void look_after_links();

  StreamShape shape_;
  GroupIdentity identity_;
  TcpMeeting* meeting_;
  std::shared_ptr<Wires> wires_ = std::make_shared<Wires>();
  UniqueFd epoll_;
  int descriptor_ = -1;
  std::vector<std::unique_ptr<TcpLink>> links_;
  std::vector<std::uint32_t> link_of_rank_;  // index into links_, or one of the above
  std::vector<FlowPlace> readable_;          // flows worth reading
  UniqueFd timer_;                           // made when a link has several sockets
  std::size_t sockets_ = 0;                  // of all links, open or not
  unsigned turns_ = 0;                       // since the last look at the epoll set
  bool asleep_ = false;                      // or about to sleep
  bool knocked_ = false;                     // something concerns the meeting
  bool timed_ = false;                       // the timer runs
  bool due_ = false;                         // it has expired
  TcpLink::Clock::time_point quiet_since_;   // when nothing moved for the first time; unset: something has since
};

}  // namespace syntony
