// A FrameLink over TCP: the data sockets to one other rank. They are made when either of the two has something to send;
// until then frames wait. If one of several fails, the others take over its frames (tcp_failover.cpp).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/frames/frame_link.hpp"
#include "core/tcp/meeting/tcp_address.hpp"
#include "core/tcp/sent_frames.hpp"
#include "core/tcp/tcp_flow.hpp"

namespace syntony {

class TcpLink final : public FrameLink {
 public:
  /// What a link asks of its owner.
  struct Requests {
    std::function<void()> call;  // sockets, once there is something to send
    /// What goes over this local address will be lost; the path of socket number `instead` is alive.
    std::function<void(const TcpAddress& local, std::size_t instead)> avoid;
    /// Another socket is to take the place of this one, which began at `local`.
    std::function<void(std::uint16_t number, const TcpAddress& local)> replace;
  };

  /// With `flows` sockets, none of which is open yet.
  TcpLink(const StreamShape& shape, const GroupIdentity& identity, std::uint32_t rank, std::size_t flows,
          Requests requests);

  void post(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload) override;
  void pass(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload,
            std::byte* slot) override;
  [[nodiscard]] bool redirects() const override { return true; }
  void redirect(std::span<const std::byte> from, std::byte* to) override;

  /// The place of a socket among flows(). One that takes the place of another has its number plus their number.
  [[nodiscard]] std::size_t flow_of(std::uint16_t number) const { return number % flows_.size(); }
  /// True if there is room for a socket of this number.
  [[nodiscard]] bool expects(std::uint16_t number) const;
  /// Requires expects(number).
  void open(std::uint16_t number, TcpStream socket, Wires::Watched watched, std::string endpoint);
  /// No socket will ever be opened: `why` names the rank. Waiting frames are lost.
  void give_up(const Error& why);
  [[nodiscard]] std::vector<TcpFlow>& flows() { return flows_; }
  /// Hands credits and frames to the kernel. True if anything moved. Credits that are not due go only with a frame, or
  /// if this rank is `quiet`.
  bool write(bool quiet = false);
  bool read(TcpFlow& flow, TcpFlow::Aside& aside);
  /// True if something waits for write() and the kernel may accept it.
  [[nodiscard]] bool wants_write() const;
  /// True if something waits until the kernel accepts it.
  [[nodiscard]] bool blocked() const;
  /// True if credits wait that are not due.
  [[nodiscard]] bool owes_late() const { return !lost() && owes_credits(); }
  /// True if something waits for write(), whether or not the kernel would accept it.
  [[nodiscard]] bool unsent() const;
  /// True if everything committed and released has reached the peer's kernel, or never will.
  [[nodiscard]] bool flushed() const;

  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLook{100};
  /// True once after something was written or has ended that look_after() must watch.
  [[nodiscard]] bool take_unwatched() { return std::exchange(unwatched_, false); }
  /// Gives up sockets that do not answer while others do. To be called every kLook while it returns true.
  [[nodiscard]] bool look_after(Clock::time_point now);

 private:
  struct Ended {
    std::size_t flow = 0;
    Clock::time_point at;
    TcpAddress local;
  };

  [[nodiscard]] bool told(const FramePrefix& prefix) override;
  [[nodiscard]] bool has_spare() const { return flows_.size() > 1; }
  [[nodiscard]] bool open_elsewhere(std::size_t flow) const;
  [[nodiscard]] bool in_use(std::size_t flow) const { return std::ranges::find(used_, flow) != used_.end(); }
  void restore(std::size_t flow, std::uint16_t number);
  [[nodiscard]] FramePrefix about(std::uint32_t kind, std::size_t flow) const;
  void enqueue(TcpFlow& flow, StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload);
  void end(TcpFlow& flow);
  void abandon(std::size_t flow, const TcpAddress& local, const std::string& why);
  [[nodiscard]] std::size_t send_again(std::size_t flow);
  void suspect(std::size_t flow);
  [[nodiscard]] TcpFlow& flow_for(StreamKey key, const FrameHeader& header);
  [[nodiscard]] bool must_pay() const { return has_spare() ? owes_credits() : owes_due_credits(); }
  void pay_credits(bool all);
  [[nodiscard]] TcpFlow& flow_for_credit();
  /// The connection is unusable from now on.
  void break_off(int failure);

  Requests requests_;
  std::vector<TcpFlow> flows_;
  std::vector<std::uint16_t> numbers_;  // of the sockets that flows_ have, or had last
  std::vector<std::size_t> used_;       // those of flows_ that have not ended, in order
  std::vector<Ended> ended_;            // whose frames no other has taken over yet
  SentFrames sent_;                     // only with several flows
  bool unwatched_ = false;
  bool called_ = false;
};

}  // namespace syntony
