#include "core/frames/frame_link.hpp"

#include <algorithm>
#include <cstring>

namespace syntony {

FrameLink::FrameLink(const StreamShape& shape, const GroupIdentity& identity, std::uint32_t rank)
    : shape_(shape),
      identity_(identity),
      rank_(rank),
      senders_(std::size_t{shape.channels} * shape.windows),
      receivers_(std::size_t{shape.channels} * shape.windows) {}

FrameSender& FrameLink::sender(StreamKey key) {
  std::unique_ptr<FrameSender>& sender = senders_.at(index(key));
  if (!sender) sender = std::make_unique<FrameSender>(*this, key, shape_);
  return *sender;
}

FrameReceiver& FrameLink::receiver(StreamKey key) {
  std::unique_ptr<FrameReceiver>& receiver = receivers_.at(index(key));
  if (!receiver) receiver = std::make_unique<FrameReceiver>(*this, key, shape_);
  return *receiver;
}

// ---- sending

void FrameLink::pass(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload,
                     std::byte* slot) {
  if (header.length > 0) std::memcpy(slot, payload, header.length);
  post(key, number, header, slot);
}

void FrameLink::owe_credit(FrameReceiver& receiver) {
  if (std::exchange(receiver.owes_credit, true)) return;
  owed_.push_back(&receiver);
}

bool FrameLink::all_released() const {
  return std::ranges::all_of(senders_, [](const auto& sender) { return !sender || sender->on_their_way() == 0; });
}

std::optional<Error> FrameLink::ended() const {
  if (!lost()) return std::nullopt;
  return Error(Error::Kind::dead, peer() + " " + lost_, {static_cast<int>(rank_)});
}

void FrameLink::require_open() const {
  if (std::optional<Error> error = ended()) throw *std::move(error);
}

FramePrefix FrameLink::data_prefix(StreamKey key, std::uint64_t number) const {
  return {.kind = FramePrefix::kData,
          .token = identity_.prefix_token(),
          .number = number,
          .window = key.window,
          .channel = key.channel};
}

FramePrefix FrameLink::credit_prefix(FrameReceiver& receiver) const {
  return {.kind = FramePrefix::kCredit,
          .token = identity_.prefix_token(),
          .number = receiver.tell(),
          .window = receiver.key().window,
          .channel = receiver.key().channel};
}

std::uint64_t FrameLink::credit_to_go_along(StreamKey key) {
  const std::unique_ptr<FrameReceiver>& receiver = receivers_[index(key)];
  return receiver ? receiver->tell() : 0;
}

// ---- receiving

bool FrameLink::known(const FramePrefix& prefix) {
  if (prefix.token != identity_.prefix_token()) {
    complaint_ = "its token is not this group's";
  } else if (prefix.channel >= shape_.channels || prefix.window >= shape_.windows) {
    complaint_ = "it names channel " + std::to_string(prefix.channel) + ", window " + std::to_string(prefix.window) +
                 " of " + std::to_string(shape_.channels) + " x " + std::to_string(shape_.windows);
  }
  return complaint_.empty();
}

std::byte* FrameLink::place(const FramePrefix& prefix, const FrameHeader& header) {
  if (!known(prefix)) return nullptr;
  if (header.token != identity_.frame_token() || header.group != identity_.group) {
    complaint_ = "its header belongs to another group (" + std::to_string(header.group) + " instead of " +
                 std::to_string(identity_.group) + ")";
  } else if (header.channel != prefix.channel) {
    complaint_ = "its header names channel " + std::to_string(header.channel) + " on the stream of channel " +
                 std::to_string(prefix.channel);
  } else if (header.length > shape_.slot_bytes) {
    complaint_ =
        "it holds " + std::to_string(header.length) + " bytes where a slot takes " + std::to_string(shape_.slot_bytes);
  }
  if (!complaint_.empty()) return nullptr;
  FrameReceiver& stream = receiver({prefix.channel, prefix.window});
  if (!discarded_.empty() && stream.has(prefix.number)) return discarded_.data();
  std::byte* const slot = stream.place(prefix.number, header);
  if (slot == nullptr) complaint_ = "no slot was free for frame " + std::to_string(prefix.number) + " of its stream";
  return slot;
}

std::byte* FrameLink::resume(const FramePrefix& prefix, std::size_t offset) {
  std::byte* const slot = receiver({prefix.channel, prefix.window}).resume(prefix.number, offset);
  if (slot == nullptr) complaint_ = "part of frame " + std::to_string(prefix.number) + " came, which is not arriving";
  return slot;
}

void FrameLink::arrived(const FramePrefix& prefix) { receiver({prefix.channel, prefix.window}).arrived(prefix.number); }

bool FrameLink::credited(const FramePrefix& prefix) {
  if (!known(prefix)) return false;
  if (sender({prefix.channel, prefix.window}).credit(prefix.number)) return true;
  complaint_ = "it gives credit for " + std::to_string(prefix.number) + " frames, more than were sent";
  return false;
}

void FrameLink::expect_repetitions() { discarded_.resize(std::max<std::size_t>(shape_.slot_bytes, 1)); }

void FrameLink::interrupted(const FramePrefix& prefix) {
  receiver({prefix.channel, prefix.window}).interrupted(prefix.number);
}

void FrameLink::owe_all_credits() {
  for (const std::unique_ptr<FrameReceiver>& receiver : receivers_) {
    if (!receiver) continue;
    receiver->forget_told();
    owe_credit(*receiver);
  }
}

// ---- ends

std::string FrameLink::peer() const {
  return "rank " + std::to_string(rank_) + (endpoint_.empty() ? "" : " at " + endpoint_);
}

void FrameLink::miss(const Error& why) {
  if (lost()) return;
  lost_ = "cannot be reached (" + std::string(why.what()) + ")";
  fault_ = why;
}

void FrameLink::lose(std::string how, std::size_t undelivered) {
  if (lost()) return;
  lost_ = std::move(how);
  if (undelivered == 0 || fault_) return;
  fault_ =
      Error(Error::Kind::dead, peer() + " " + lost_ + " with " + std::to_string(undelivered) + " frames undelivered",
            {static_cast<int>(rank_)});
}

void FrameLink::refuse() {
  lost_ = "was disconnected: it sent a frame that cannot be believed (" +
          (complaint_.empty() ? std::string("it does not begin like one") : complaint_) + ")";
  fault_ = Error(Error::Kind::mismatch, peer() + " " + lost_, {static_cast<int>(rank_)});
}

}  // namespace syntony
