// All that one rank shares with one other over a wire between hosts, whatever the wire: the streams, and what may be
// believed of what the other sends. TcpLink and UcxLink add how frames travel.
//
// How it ends, precisely:
//   - The peer cannot be reached: that is a fault, of the kind that the wire tells.
//   - The connection ends, or the peer's process dies: frames that arrived whole stay readable, half a frame never
//     shows. The link no longer sends: reserve() and commit() throw Error(dead). If frames were still on their way out
//     they are lost, and that is a fault; credits are no loss.
//   - The peer sends what cannot be believed: the link is closed at once and that is a fault, Error(mismatch).
// A fault is kept until take_fault(), once; the transport throws it from progress().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/frames/frame_stream.hpp"
#include "core/frames/frame_wire.hpp"

namespace syntony {

/// Whom a wire tells what it has read. Nothing is believed before the sink has agreed.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  /// Where the payload goes, header.length bytes; nullptr refuses the frame.
  [[nodiscard]] virtual std::byte* place(const FramePrefix& prefix, const FrameHeader& header) = 0;
  /// The payload of a frame that was placed is complete.
  virtual void arrived(const FramePrefix& prefix) = 0;
  /// False refuses the credit.
  [[nodiscard]] virtual bool credited(const FramePrefix& prefix) = 0;
};

class FrameLink : protected FrameSink {
 public:
  FrameLink(const StreamShape& shape, const GroupIdentity& identity, std::uint32_t rank);
  FrameLink(const FrameLink&) = delete;
  FrameLink& operator=(const FrameLink&) = delete;
  ~FrameLink() override = default;

  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] FrameSender& sender(StreamKey key);
  [[nodiscard]] FrameReceiver& receiver(StreamKey key);
  [[nodiscard]] std::optional<Error> take_fault() { return std::exchange(fault_, std::nullopt); }

  // For the streams.
  virtual void post(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload) = 0;
  /// As post(), of a payload that stays as it is during this call only: what the wire does not take at once is copied
  /// to `slot`.
  virtual void pass(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload,
                    std::byte* slot);
  /// Whether what has begun to arrive at one place can end at another.
  [[nodiscard]] virtual bool redirects() const { return false; }
  /// What is still to come of a payload at `from` goes to `to`, where what has come was copied.
  virtual void redirect(std::span<const std::byte> /*from*/, std::byte* /*to*/) {}
  void owe_credit(FrameReceiver& receiver);
  /// Throws Error(dead) when nothing can be sent any more.
  void require_open() const;

 protected:
  [[nodiscard]] std::byte* place(const FramePrefix& prefix, const FrameHeader& header) override;
  void arrived(const FramePrefix& prefix) override;
  [[nodiscard]] bool credited(const FramePrefix& prefix) override;

  [[nodiscard]] const GroupIdentity& identity() const { return identity_; }
  [[nodiscard]] bool lost() const { return !lost_.empty(); }
  [[nodiscard]] bool owes_credits() const { return !owed_.empty(); }
  /// The peer has said of every frame that it has released it.
  [[nodiscard]] bool all_released() const;
  /// Gives what is owed: `give` is called with each credit for `least` frames or more; none on a lost link.
  template <typename Give>
  void pay_credits(std::uint64_t least, const Give& give) {
    std::size_t kept = 0;
    for (FrameReceiver* receiver : owed_) {
      if (!lost() && receiver->owed() > 0 && receiver->owed() < least) {
        owed_[kept++] = receiver;
        continue;
      }
      receiver->owes_credit = false;
      if (!lost() && receiver->owed() > 0) give(credit_prefix(*receiver));
    }
    owed_.resize(kept);
  }
  /// A credit for the frames of a stream that this rank receives, to travel with one that it sends.
  [[nodiscard]] std::uint64_t credit_to_go_along(StreamKey key);
  [[nodiscard]] FramePrefix data_prefix(StreamKey key, std::uint64_t number) const;
  [[nodiscard]] FramePrefix credit_prefix(FrameReceiver& receiver) const;
  /// "rank 3 at 10.0.0.7:4711"
  [[nodiscard]] std::string peer() const;
  void name_endpoint(std::string endpoint) { endpoint_ = std::move(endpoint); }
  /// It carries no more: `how` follows the peer's name. `undelivered` frames are lost with it.
  void lose(std::string how, std::size_t undelivered);
  /// The peer talks nonsense.
  void refuse();
  /// It was never there: `why` names the rank.
  void miss(const Error& why);

 private:
  [[nodiscard]] std::size_t index(StreamKey key) const {
    return std::size_t{key.channel} * shape_.windows + key.window;
  }
  [[nodiscard]] bool known(const FramePrefix& prefix);

  StreamShape shape_;
  GroupIdentity identity_;
  std::uint32_t rank_;
  std::string endpoint_;                                   // empty until it is known
  std::vector<std::unique_ptr<FrameSender>> senders_;      // [channel * windows + window], made when first used
  std::vector<std::unique_ptr<FrameReceiver>> receivers_;  // likewise
  std::vector<FrameReceiver*> owed_;
  std::string lost_;       // why it cannot send any more; empty while it can
  std::string complaint_;  // what the peer sent that cannot be believed
  std::optional<Error> fault_;
};

}  // namespace syntony
