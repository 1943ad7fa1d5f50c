// A FrameLink over TCP: the data sockets to one other rank. They are made when either of the two has something to send;
// until then frames wait.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/frames/frame_link.hpp"
#include "core/tcp/tcp_flow.hpp"

namespace syntony {

class TcpLink final : public FrameLink {
 public:
  /// With `flows` sockets, none of which is open yet. `call` is called to request them once there is something to send.
  TcpLink(const StreamShape& shape, const GroupIdentity& identity, std::uint32_t rank, std::size_t flows,
          std::function<void()> call);

  void post(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload) override;
  void pass(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload,
            std::byte* slot) override;
  [[nodiscard]] bool redirects() const override { return true; }
  void redirect(std::span<const std::byte> from, std::byte* to) override;

  void open(std::size_t flow, UniqueFd socket, Wires::Watched watched, std::string endpoint);
  /// No socket will ever be opened: `why` names the rank. Waiting frames are lost.
  void give_up(const Error& why);
  [[nodiscard]] std::vector<TcpFlow>& flows() { return flows_; }
  /// Hands credits and frames to the kernel. True if anything moved.
  bool write();
  bool read(TcpFlow& flow, TcpFlow::Aside& aside);
  /// True if something waits for write() and the kernel may accept it.
  [[nodiscard]] bool wants_write() const;
  /// True if something waits for write(), whether or not the kernel would accept it.
  [[nodiscard]] bool unsent() const;
  /// True if everything committed and released has reached the peer's kernel, or never will.
  [[nodiscard]] bool flushed() const;

 private:
  [[nodiscard]] TcpFlow& flow_for(StreamKey key, const FrameHeader& header);
  void pay_credits();
  [[nodiscard]] TcpFlow& flow_for_credit();
  /// The connection is unusable from now on.
  void break_off(int failure);

  std::function<void()> call_;
  std::vector<TcpFlow> flows_;
  bool called_ = false;
};

}  // namespace syntony
