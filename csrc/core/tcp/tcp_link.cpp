#include "core/tcp/tcp_link.hpp"

#include <algorithm>
#include <utility>

#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {

TcpLink::TcpLink(const StreamShape& shape, const TcpIdentity& identity, std::uint32_t rank, std::size_t flows,
                 std::function<void()> call)
    : shape_(shape),
      identity_(identity),
      rank_(rank),
      call_(std::move(call)),
      flows_(flows),
      senders_(std::size_t{shape.channels} * shape.windows),
      receivers_(std::size_t{shape.channels} * shape.windows) {}

void TcpLink::open(std::size_t flow, UniqueFd socket, std::string endpoint) {
  if (!lost_.empty()) return;
  called_ = true;
  endpoint_ = std::move(endpoint);
  flows_.at(flow).open(std::move(socket));
}

void TcpLink::give_up(const Error& why) {
  if (!lost_.empty()) return;
  lost_ = "cannot be reached (" + std::string(why.what()) + ")";
  for (TcpFlow& flow : flows_) flow.forget_unsent();
  fault_ = why;
}

TcpSender& TcpLink::sender(StreamKey key) {
  std::unique_ptr<TcpSender>& sender = senders_.at(index(key));
  if (!sender) sender = std::make_unique<TcpSender>(*this, key, shape_);
  return *sender;
}

TcpReceiver& TcpLink::receiver(StreamKey key) {
  std::unique_ptr<TcpReceiver>& receiver = receivers_.at(index(key));
  if (!receiver) receiver = std::make_unique<TcpReceiver>(*this, key, shape_);
  return *receiver;
}

// ---- sending

void TcpLink::post(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload) {
  const FramePrefix prefix{.kind = FramePrefix::kData,
                           .token = identity_.prefix_token(),
                           .number = number,
                           .window = key.window,
                           .channel = key.channel};
  // A message's slices are dealt to the flows from the same one on, whatever the operation: so those of an operation
  // are on every flow before those of the operations after it, which never share the wire with it by halves.
  flows_[(header.slice + key.channel) % flows_.size()].push(prefix, header, payload);
  if (!std::exchange(called_, true)) call_();
}

void TcpLink::owe_credit(TcpReceiver& receiver) {
  if (std::exchange(receiver.owes_credit, true)) return;
  owed_.push_back(&receiver);
}

void TcpLink::require_open() const {
  if (!lost_.empty()) throw Error(Error::Kind::dead, peer() + " " + lost_, {static_cast<int>(rank_)});
}

bool TcpLink::wants_write() const {
  return !owed_.empty() ||
         std::ranges::any_of(flows_, [](const TcpFlow& flow) { return flow.writable() && flow.unsent_entries() > 0; });
}

bool TcpLink::unsent() const {
  return !owed_.empty() || std::ranges::any_of(flows_, [](const TcpFlow& flow) { return flow.unsent_entries() > 0; });
}

TcpFlow& TcpLink::flow_for_credit() {
  return *std::ranges::min_element(flows_, {}, [](const TcpFlow& flow) {
    return std::pair(flow.socket() < 0, flow.unsent_entries());  // one is open: it has brought what is credited
  });
}

bool TcpLink::write() {
  // Credits of one pass travel with its frames, in the same system call.
  for (TcpReceiver* receiver : owed_) {
    receiver->owes_credit = false;
    if (!lost_.empty()) continue;
    flow_for_credit().push({.kind = FramePrefix::kCredit,
                            .token = identity_.prefix_token(),
                            .number = receiver->released(),
                            .window = receiver->key().window,
                            .channel = receiver->key().channel});
  }
  owed_.clear();
  bool moved = false;
  for (TcpFlow& flow : flows_) {
    const TcpFlow::Outcome outcome = flow.write();
    moved |= outcome == TcpFlow::Outcome::moved;
    if (outcome == TcpFlow::Outcome::ended) lose(flow.failure());
  }
  return moved;
}

bool TcpLink::flushed() const {
  if (!lost_.empty()) return true;
  return owed_.empty() && std::ranges::all_of(flows_, [](const TcpFlow& flow) {
           return flow.unsent_entries() == 0 && acknowledged(flow.socket());
         });
}

// ---- receiving

bool TcpLink::read(TcpFlow& flow) {
  switch (flow.read(*this)) {
    case TcpFlow::Outcome::moved:
      return true;
    case TcpFlow::Outcome::nothing:
      return false;
    case TcpFlow::Outcome::ended:
      lose(flow.failure());
      return true;
    case TcpFlow::Outcome::refused:
      refuse();
      return true;
  }
  return false;
}

bool TcpLink::known(const FramePrefix& prefix) {
  if (prefix.token != identity_.prefix_token()) {
    complaint_ = "its token is not this group's";
  } else if (prefix.channel >= shape_.channels || prefix.window >= shape_.windows) {
    complaint_ = "it names channel " + std::to_string(prefix.channel) + ", window " + std::to_string(prefix.window) +
                 " of " + std::to_string(shape_.channels) + " x " + std::to_string(shape_.windows);
  }
  return complaint_.empty();
}

std::byte* TcpLink::place(const FramePrefix& prefix, const FrameHeader& header) {
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
  std::byte* const slot = receiver({prefix.channel, prefix.window}).place(prefix.number, header);
  if (slot == nullptr) complaint_ = "no slot was free for frame " + std::to_string(prefix.number) + " of its stream";
  return slot;
}

void TcpLink::arrived(const FramePrefix& prefix) { receiver({prefix.channel, prefix.window}).arrived(prefix.number); }

bool TcpLink::credited(const FramePrefix& prefix) {
  if (!known(prefix)) return false;
  if (sender({prefix.channel, prefix.window}).credit(prefix.number)) return true;
  complaint_ = "it gives credit for " + std::to_string(prefix.number) + " frames, more than were sent";
  return false;
}

// ---- ends

std::string TcpLink::peer() const {
  return "rank " + std::to_string(rank_) + (endpoint_.empty() ? "" : " at " + endpoint_);
}

void TcpLink::lose(int failure) {
  if (!lost_.empty()) return;
  lost_ = failure == 0 ? "closed its connection" : "lost its connection (" + sentence_of(failure) + ")";
  std::size_t undelivered = 0;
  for (TcpFlow& flow : flows_) {
    undelivered += flow.unsent_frames();
    flow.forget_unsent();
  }
  if (undelivered == 0 || fault_) return;
  fault_ =
      Error(Error::Kind::dead, peer() + " " + lost_ + " with " + std::to_string(undelivered) + " frames undelivered",
            {static_cast<int>(rank_)});
}

void TcpLink::refuse() {
  for (TcpFlow& flow : flows_) flow.shut();
  lost_ = "was disconnected: it sent a frame that cannot be believed (" +
          (complaint_.empty() ? std::string("it does not begin like one") : complaint_) + ")";
  fault_ = Error(Error::Kind::mismatch, peer() + " " + lost_, {static_cast<int>(rank_)});
}

}  // namespace syntony
