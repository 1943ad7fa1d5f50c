// All that one rank shares with one other over TCP: the data sockets and the streams that run over them. The sockets
// are made when the first of the two has something to send, and frames wait until they are there.
//
// How it ends, precisely:
//   - The sockets cannot be made: that is a fault, of the kind that the meeting tells (tcp_meeting.hpp).
//   - The peer closes or its process dies: frames that arrived whole stay readable, half a frame never shows. The link
//     no longer sends: reserve() and commit() throw Error(dead). If frames were still waiting for the kernel they are
//     lost, and that is a fault; credits that were waiting are no loss.
//   - The peer sends what cannot be believed: the link is closed at once and that is a fault, Error(mismatch).
// A fault is kept until take_fault(), once; the transport throws it from progress().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/tcp/meeting/tcp_meeting.hpp"
#include "core/tcp/tcp_flow.hpp"
#include "core/tcp/tcp_stream.hpp"

namespace syntony {

class TcpLink final : private FrameSink {
 public:
  /// Of so many sockets, none of which is open yet. `call` is asked for them once there is something to send.
  TcpLink(const StreamShape& shape, const TcpIdentity& identity, std::uint32_t rank, std::size_t flows,
          std::function<void()> call);

  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] TcpSender& sender(StreamKey key);
  [[nodiscard]] TcpReceiver& receiver(StreamKey key);

  // For the streams.
  void post(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload);
  void owe_credit(TcpReceiver& receiver);
  /// Throws Error(dead) when nothing can be sent any more.
  void require_open() const;

  // For the transport.
  void open(std::size_t flow, UniqueFd socket, std::string endpoint);
  /// No socket will ever be opened: `why` names the rank. What waits for one is lost.
  void give_up(const Error& why);
  [[nodiscard]] std::vector<TcpFlow>& flows() { return flows_; }
  /// Hands credits and frames to the kernel. True when anything moved.
  bool write();
  bool read(TcpFlow& flow);
  /// Something waits for write(), and the kernel may take it.
  [[nodiscard]] bool wants_write() const;
  /// Something waits for write(), whether or not the kernel would take it.
  [[nodiscard]] bool unsent() const;
  /// Everything committed and released has reached the peer's kernel, or never will.
  [[nodiscard]] bool flushed() const;
  [[nodiscard]] std::optional<Error> take_fault() { return std::exchange(fault_, std::nullopt); }

 private:
  [[nodiscard]] std::byte* place(const FramePrefix& prefix, const FrameHeader& header) override;
  void arrived(const FramePrefix& prefix) override;
  [[nodiscard]] bool credited(const FramePrefix& prefix) override;

  [[nodiscard]] std::size_t index(StreamKey key) const {
    return std::size_t{key.channel} * shape_.windows + key.window;
  }
  [[nodiscard]] bool known(const FramePrefix& prefix);
  [[nodiscard]] TcpFlow& flow_for_credit();
  /// The connection cannot carry more.
  void lose(int failure);
  /// The peer talks nonsense.
  void refuse();
  [[nodiscard]] std::string peer() const;

  StreamShape shape_;
  TcpIdentity identity_;
  std::uint32_t rank_;
  std::function<void()> call_;
  std::string endpoint_;  // empty until a socket is open
  std::vector<TcpFlow> flows_;
  std::vector<std::unique_ptr<TcpSender>> senders_;      // [channel * windows + window], made when first used
  std::vector<std::unique_ptr<TcpReceiver>> receivers_;  // likewise
  std::vector<TcpReceiver*> owed_;                       // receivers that owe a credit
  std::string lost_;                                     // why it cannot send any more; empty while it can
  bool called_ = false;
  std::string complaint_;  // what the peer sent that cannot be believed
  std::optional<Error> fault_;
};

}  // namespace syntony
