#include "core/frames/message_link.hpp"

#include <utility>

namespace syntony {

MessageLink::MessageLink(const StreamShape& shape, const GroupIdentity& identity, std::uint32_t rank)
    : FrameLink(shape, identity, rank),
      our_mark_(mark_of(identity, identity.rank, rank)),
      their_mark_(mark_of(identity, rank, identity.rank)) {}

MessageHeader MessageLink::addressed(const FramePrefix& prefix) const {
  MessageHeader message;
  message.mark = our_mark_;
  message.from = identity().rank;
  message.to = rank();
  message.prefix = prefix;
  return message;
}

std::byte* MessageLink::believe(const MessageHeader& message, std::size_t bytes) {
  if (lost()) return nullptr;
  if (message.prefix.kind == FramePrefix::kCredit) {
    if (!credited(message.prefix)) refuse();
    return nullptr;
  }
  FramePrefix credit = message.prefix;
  credit.number = message.credit;
  std::byte* slot = nullptr;
  if (credit.number == 0 || credited(credit)) {
    const bool whole = message.prefix.kind == FramePrefix::kData && message.header.length == bytes;
    if (whole) slot = place(message.prefix, message.header);
  }
  if (slot == nullptr) refuse();
  return slot;
}

void MessageLink::taken(const FramePrefix& prefix) {
  const bool data = prefix.kind == FramePrefix::kData;
  quiet_since_ = {};
  ++sending_;
  ++unfenced_;
  sending_frames_ += data ? 1 : 0;
  unfenced_frames_ += data ? 1 : 0;
}

void MessageLink::done_with(const FramePrefix& prefix, bool failed) {
  --sending_;
  if (prefix.kind != FramePrefix::kData) return;
  --sending_frames_;
  failed_frames_ += failed ? 1 : 0;
  sender({prefix.channel, prefix.window}).let_go(prefix.number);
}

bool MessageLink::write() {
  constexpr std::uint64_t kWorthAMessage = 2;
  return pay(kWorthAMessage);
}

bool MessageLink::pay(std::uint64_t least) {
  bool moved = false;
  const auto pays = [least](const FrameReceiver& receiver) { return receiver.owed() >= least; };
  pay_credits(pays, [&](const FramePrefix& credit) {
    send_credit(credit);
    moved = true;
  });
  return moved;
}

// Wires may report a message as sent although they have only copied it and still hold it for lack of room. A fence
// tells when they no longer do, but costs a round trip.
bool MessageLink::rest() {
  constexpr std::chrono::microseconds kShort{30}, kLong{300};
  if (lost() || (!owes_credits() && unfenced_ == 0)) return false;
  const Clock::time_point now = Clock::now();
  if (quiet_since_ == Clock::time_point{}) quiet_since_ = now;
  const Clock::duration quiet = now - quiet_since_;
  if (quiet > kShort && owes_credits()) return pay(1);
  if (quiet < kLong || unfenced_ == 0 || sending_ > 0 || fencing_) return false;
  const std::size_t frames = std::exchange(unfenced_frames_, 0);
  unfenced_ = 0;
  fencing_ = true;
  if (!fence()) {
    fencing_ = false;
    unfenced_frames_ = frames;
  }
  return true;
}

bool MessageLink::unsent() const { return !lost() && (owes_credits() || sending_ > 0 || unfenced_ > 0 || fencing_); }

// Peers that have left answer no fence. Before leaving, they reported what they had released.
bool MessageLink::handed_over() const { return !unsent() || (!owes_credits() && sending_ == 0 && all_released()); }

}  // namespace syntony
