// Everything that one rank shares with one other over a wire between hosts, whatever the wire: the streams, and the
// validation of what the other sends. TcpLink and UcxLink add how frames are sent.
//
// How it ends, precisely:
//  - The peer cannot be reached: that is a fault, of the kind that the wire reports.
//  - The connection ends, or the peer's process dies: frames that arrived completely stay readable, partial frames are
//    never shown. The link no longer sends: reserve() and commit() throw Error(dead). If frames were still in flight,
//    they are lost, and that is a fault; losing credits is none. What the kernels held is lost unnoticed: if the peer
//    lives, whoever waits for it must ask (ended()).
//  - The peer sends something invalid: the link is closed immediately, and that is a fault, Error(mismatch).
// A fault is kept until take_fault(), which returns it once; the transport throws it from progress().
#pragma once

#include <algorithm>
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

/// Receives what a wire has read. No data is used before the sink has accepted it.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  /// Where the payload goes, header.length bytes; nullptr rejects the frame.
  [[nodiscard]] virtual std::byte* place(const FramePrefix& prefix, const FrameHeader& header) = 0;
  /// Where the payload of a placed frame goes from byte `offset` on; nullptr rejects it.
  [[nodiscard]] virtual std::byte* resume(const FramePrefix& /*prefix*/, std::size_t /*offset*/) { return nullptr; }
  /// The payload of a placed frame is complete.
  virtual void arrived(const FramePrefix& prefix) = 0;
  /// False rejects the credit.
  [[nodiscard]] virtual bool credited(const FramePrefix& prefix) = 0;
  /// A prefix about the sockets themselves, `lost` or `probe`. False rejects it.
  [[nodiscard]] virtual bool told(const FramePrefix& /*prefix*/) { return false; }
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
  /// Like post(), with a payload that is valid only during this call: what the wire does not take immediately is copied
  /// to `slot`.
  virtual void pass(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload,
                    std::byte* slot);
  /// Room for frame `number`, which the peer reads where it is; nullptr if there is none.
  [[nodiscard]] virtual std::byte* lent_room(StreamKey /*key*/, std::uint64_t /*number*/) { return nullptr; }
  /// Takes the frame, or the credit, that the peer has left for a stream where this rank can read it, if there is such
  /// a place.
  virtual void look_for_frame(StreamKey /*key*/) {}
  virtual void look_for_credit(StreamKey /*key*/) {}
  /// True if payloads may arrive where they are expected: those that have begun to can be completed in another place.
  [[nodiscard]] virtual bool redirects() const { return false; }
  /// The rest of a payload arriving at `from` goes to `to`, to which the first part has been copied.
  virtual void redirect(std::span<const std::byte> /*from*/, std::byte* /*to*/) {}
  virtual void owe_credit(FrameReceiver& receiver);
  /// Throws ended() if nothing can be sent any more.
  void require_open() const;
  /// Error(dead): how the connection ended. Empty while it lasts.
  [[nodiscard]] std::optional<Error> ended() const;

 protected:
  [[nodiscard]] std::byte* place(const FramePrefix& prefix, const FrameHeader& header) override;
  [[nodiscard]] std::byte* resume(const FramePrefix& prefix, std::size_t offset) override;
  void arrived(const FramePrefix& prefix) override;
  [[nodiscard]] bool credited(const FramePrefix& prefix) override;

  /// What the peer may not have received is sent again, here and there: frames that have arrived already are discarded.
  void expect_repetitions();
  /// The rest of this frame will not come where it began to: it comes again, whole.
  void interrupted(const FramePrefix& prefix);
  /// Tells the peer of every stream how many frames have been released; it may have missed any of the credits.
  void owe_all_credits();

  [[nodiscard]] const GroupIdentity& identity() const { return identity_; }
  [[nodiscard]] const StreamShape& shape() const { return shape_; }
  [[nodiscard]] std::size_t index(StreamKey key) const {
    return std::size_t{key.channel} * shape_.windows + key.window;
  }
  [[nodiscard]] StreamKey stream_at(std::size_t index) const {
    return {.channel = static_cast<std::uint32_t>(index / shape_.windows),
            .window = static_cast<std::uint32_t>(index % shape_.windows)};
  }
  [[nodiscard]] bool lost() const { return !lost_.empty(); }
  [[nodiscard]] bool owes_credits() const { return !owed_.empty(); }
  /// True if one of them should be paid without waiting for a frame that goes the same way.
  [[nodiscard]] bool owes_due_credits() const { return std::ranges::any_of(owed_, &FrameReceiver::due); }
  /// True if the peer has released every frame.
  [[nodiscard]] bool all_released() const;
  /// Gives what is owed to the receivers that `pays` chooses: `give` is called with each credit; none on a lost link.
  template <typename Pays, typename Give>
  void pay_credits(const Pays& pays, const Give& give) {
    std::size_t kept = 0;
    for (FrameReceiver* receiver : owed_) {
      if (!lost() && receiver->owed() > 0 && !pays(*receiver)) {
        owed_[kept++] = receiver;
        continue;
      }
      receiver->owes_credit = false;
      if (!lost() && receiver->owed() > 0) give(credit_prefix(*receiver));
    }
    owed_.resize(kept);
  }
  /// True if it bears this group's mark and names a stream of it; otherwise the complaint is noted.
  [[nodiscard]] bool known(const FramePrefix& prefix);
  void complain(std::string what) { complaint_ = std::move(what); }
  /// A credit for the frames that this rank receives on a stream, to be sent along with one of its own.
  [[nodiscard]] std::uint64_t credit_to_go_along(StreamKey key);
  [[nodiscard]] FramePrefix data_prefix(StreamKey key, std::uint64_t number) const;
  [[nodiscard]] FramePrefix credit_prefix(FrameReceiver& receiver) const;
  /// "rank 3 at 10.0.0.7:4711"
  [[nodiscard]] std::string peer() const;
  void name_endpoint(std::string endpoint) { endpoint_ = std::move(endpoint); }
  /// The link is dead: `how` follows the peer's name. `undelivered` frames are lost with it.
  void lose(std::string how, std::size_t undelivered);
  /// The peer sent something invalid.
  void refuse();
  /// The peer was never reached: `why` names the rank.
  void miss(const Error& why);

 private:
  StreamShape shape_;
  GroupIdentity identity_;
  std::uint32_t rank_;
  std::string endpoint_;                                   // empty until known
  std::vector<std::unique_ptr<FrameSender>> senders_;      // [channel * windows + window], made when first used
  std::vector<std::unique_ptr<FrameReceiver>> receivers_;  // likewise
  std::vector<FrameReceiver*> owed_;
  std::vector<std::byte> discarded_;  // repeated frames go here; empty while none is expected
  std::string lost_;                  // why it cannot send any more; empty if it can
  std::string complaint_;             // what invalid data the peer sent
  std::optional<Error> fault_;
};

/// For Transport::ended().
template <typename Links>
[[nodiscard]] std::vector<Error> ended_of(const Links& links) {
  std::vector<Error> errors;
  for (const auto& link : links) {
    if (std::optional<Error> error = link->ended()) errors.push_back(*std::move(error));
  }
  return errors;
}

}  // namespace syntony
