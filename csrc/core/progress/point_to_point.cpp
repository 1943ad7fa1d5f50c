#include "core/progress/point_to_point.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

namespace syntony {
namespace {

constexpr std::uint32_t kChannel = 0;

std::string source_name(int source) { return source == kAnySource ? "any rank" : "rank " + std::to_string(source); }

}  // namespace

PointToPoint::PointToPoint(std::uint32_t rank, std::span<Transport* const> transports, std::uint32_t window,
                           std::uint32_t slot_bytes, const FrameHeader& header, std::span<SentBytes> sent)
    : rank_(rank), transports_(transports), window_(window), slot_bytes_(slot_bytes), header_(header), sent_(sent) {}

void PointToPoint::send(OutgoingMessage message) {
  if (message.destination == rank_) {
    send_to_self(message);
    return;
  }
  ++pending_sends_;
  outgoing_[message.destination].push_back(std::move(message));
}

void PointToPoint::send_to_self(const OutgoingMessage& message) {
  FrameHeader header = header_;
  header.fingerprint = message.tag;
  header.total = message.bytes;
  header.length = 0;
  begin(rank_, header);
  IncomingMessage& incoming = incoming_[rank_].back();
  incoming.data.assign(message.data, message.data + message.bytes);
  incoming.received = message.bytes;
  incoming.next_slice = 1;
  settle(rank_);
  message.work->finish(nullptr);
}

void PointToPoint::receive(PostedReceive receive) {
  for (auto& [peer, messages] : incoming_) {
    if (receive.source != kAnySource && receive.source != static_cast<int>(peer)) continue;
    for (IncomingMessage& message : messages) {
      if (message.claimant || message.tag != receive.tag) continue;
      message.claimant = std::move(receive);
      message.claimant->work->record().started();
      ++claimed_;
      settle(peer);
      return;
    }
  }
  receives_.push_back(std::move(receive));
}

bool PointToPoint::step() {
  bool moved = false;
  if (pending_sends_ > 0) {
    for (auto& [_, queue] : outgoing_) moved |= push(queue);
  }
  // With nothing posted, frames stay in their slots, unless we send: a peer may then be waiting for us to make room.
  if (busy()) {
    for (std::uint32_t peer = 0; peer < transports_.size(); ++peer) moved |= pull(peer);
  }
  return moved;
}

bool PointToPoint::push(std::list<OutgoingMessage>& queue) {
  bool moved = false;
  while (!queue.empty()) {
    OutgoingMessage& message = queue.front();
    Sender& sender = transports_[message.destination]->sender(message.destination, kChannel, window_);
    const std::size_t length = std::min<std::size_t>(slot_bytes_, message.bytes - message.sent);
    FrameHeader header = header_;
    header.sequence = next_message_[message.destination];
    header.fingerprint = message.tag;
    header.slice = message.slice;
    header.length = static_cast<std::uint32_t>(length);
    header.total = message.bytes;
    if (!sender.send(header, message.data + message.sent)) break;
    message.work->record().started();
    ++message.slice;
    count(sent_[message.destination], header.length);
    moved = true;
    message.sent += header.length;
    if (message.sent < message.bytes) continue;
    ++next_message_[message.destination];
    --pending_sends_;
    const std::shared_ptr<Work> work = std::move(message.work);
    queue.pop_front();
    work->finish(nullptr);
  }
  return moved;
}

bool PointToPoint::pull(std::uint32_t peer) {
  if (transports_[peer] == nullptr || !transports_[peer]->heard_from(peer)) return false;
  Receiver& receiver = transports_[peer]->receiver(peer, kChannel, window_);
  bool moved = false;
  while (const FrameHeader* header = receiver.front()) {
    take(peer, *header, receiver.payload());
    receiver.release();
    moved = true;
  }
  return moved;
}

void PointToPoint::take(std::uint32_t peer, const FrameHeader& header, const std::byte* payload) {
  std::list<IncomingMessage>& incoming = incoming_[peer];
  const bool interrupted = header.slice == 0 && !incoming.empty() && !incoming.back().complete();
  if (header.slice == 0 && !interrupted) begin(peer, header);
  if (header.token != header_.token || header.group != header_.group || interrupted || incoming.empty() ||
      incoming.back().next_slice != header.slice || header.total != incoming.back().total ||
      header.length > header.total - incoming.back().received) {
    throw Error(Error::Kind::mismatch, "rank " + std::to_string(peer) + " sent a point-to-point frame out of order",
                {static_cast<int>(peer)});
  }
  IncomingMessage& message = incoming.back();
  const bool direct = message.claimant && message.data.empty() && message.claimant->bytes == message.total;
  if (header.length > 0) {
    if (direct) {
      std::memcpy(message.claimant->data + message.received, payload, header.length);
    } else {
      message.data.resize(message.received + header.length);  // never more than has arrived, whatever was announced
      std::memcpy(message.data.data() + message.received, payload, header.length);
    }
  }
  message.received += header.length;
  ++message.next_slice;
  if (message.complete()) settle(peer);
}

void PointToPoint::begin(std::uint32_t peer, const FrameHeader& header) {
  IncomingMessage message;
  message.tag = header.fingerprint;
  message.total = header.total;
  const auto match = std::ranges::find_if(receives_, [&](const PostedReceive& receive) {
    return receive.tag == message.tag && (receive.source == kAnySource || receive.source == static_cast<int>(peer));
  });
  if (match != receives_.end()) {
    message.claimant = std::move(*match);
    message.claimant->work->record().started();
    receives_.erase(match);
    ++claimed_;
  }
  incoming_[peer].push_back(std::move(message));
}

// Hands every complete and matched message of `peer` to its receive.
void PointToPoint::settle(std::uint32_t peer) {
  std::list<IncomingMessage>& incoming = incoming_[peer];
  for (auto message = incoming.begin(); message != incoming.end();) {
    if (message->complete() && message->claimant) {
      deliver(peer, *message);
      message = incoming.erase(message);
    } else {
      ++message;
    }
  }
}

void PointToPoint::deliver(std::uint32_t peer, IncomingMessage& message) {
  const PostedReceive& receive = *message.claimant;
  --claimed_;
  receive.work->source_ = static_cast<int>(peer);
  if (receive.bytes != message.total) {
    receive.work->finish(
        std::make_exception_ptr(Error(Error::Kind::mismatch,
                                      "rank " + std::to_string(peer) + " sent " + std::to_string(message.total) +
                                          " bytes with tag " + std::to_string(message.tag) + " to rank " +
                                          std::to_string(rank_) + ", which expected " + std::to_string(receive.bytes),
                                      {static_cast<int>(peer), static_cast<int>(rank_)})));
    return;
  }
  if (!message.data.empty()) std::memcpy(receive.data, message.data.data(), message.total);
  receive.work->finish(nullptr);
}

std::vector<std::uint32_t> PointToPoint::waiting_for() const {
  std::vector<std::uint32_t> peers;
  for (const auto& [peer, queue] : outgoing_) {
    if (!queue.empty()) peers.push_back(peer);
  }
  for (const auto& [peer, messages] : incoming_) {
    if (!messages.empty() && !messages.back().complete() && messages.back().claimant) peers.push_back(peer);
  }
  for (const PostedReceive& receive : receives_) {
    if (receive.source != kAnySource) peers.push_back(static_cast<std::uint32_t>(receive.source));
  }
  std::erase(peers, rank_);
  return peers;
}

bool PointToPoint::waits_for_anyone() const {
  return std::ranges::find(receives_, kAnySource, &PostedReceive::source) != receives_.end();
}

std::optional<std::string> PointToPoint::waiting_since(Work::Clock::time_point then) const {
  for (const PostedReceive& receive : receives_) {
    if (receive.source == kAnySource || receive.lifetime.created > then) continue;
    return "a receive: " + source_name(receive.source) + " has sent nothing with tag " + std::to_string(receive.tag);
  }
  for (const auto& [peer, queue] : outgoing_) {
    if (queue.empty() || queue.front().lifetime.created > then) continue;
    return "a send: rank " + std::to_string(peer) + " does not receive tag " + std::to_string(queue.front().tag);
  }
  return std::nullopt;
}

std::optional<std::string> PointToPoint::expire(Work::Clock::time_point now) {
  for (auto receive = receives_.begin(); receive != receives_.end();) {
    if (now < receive->lifetime.deadline) {
      ++receive;
      continue;
    }
    std::vector<int> guilty;
    if (receive->source != kAnySource) guilty.push_back(receive->source);
    receive->work->finish(std::make_exception_ptr(Error(Error::Kind::timeout,
                                                        "receive timed out on rank " + std::to_string(rank_) + ": " +
                                                            source_name(receive->source) + " sent nothing with tag " +
                                                            std::to_string(receive->tag) + " (" +
                                                            std::to_string(receive->bytes) + " bytes expected)",
                                                        guilty)));
    receive = receives_.erase(receive);
  }
  for (const auto& [_, queue] : outgoing_) {
    if (queue.empty() || now < queue.front().lifetime.deadline) continue;
    return "send timed out on rank " + std::to_string(rank_) + ": rank " + std::to_string(queue.front().destination) +
           " does not receive (tag " + std::to_string(queue.front().tag) + ", " + std::to_string(queue.front().sent) +
           " of " + std::to_string(queue.front().bytes) + " bytes are on their way)";
  }
  for (const auto& [peer, messages] : incoming_) {
    if (messages.empty()) continue;
    const IncomingMessage& last = messages.back();
    if (last.complete() || !last.claimant || now < last.claimant->lifetime.deadline) continue;
    return "receive timed out on rank " + std::to_string(rank_) + ": rank " + std::to_string(peer) + " stopped after " +
           std::to_string(last.received) + " of " + std::to_string(last.total) + " bytes";
  }
  return std::nullopt;
}

void PointToPoint::fail(const std::exception_ptr& error) {
  for (const auto& [_, queue] : outgoing_) {
    for (const OutgoingMessage& message : queue) message.work->finish(error);
  }
  outgoing_.clear();
  for (const auto& [_, incoming] : incoming_) {
    for (const IncomingMessage& message : incoming) {
      if (message.claimant) message.claimant->work->finish(error);
    }
  }
  incoming_.clear();
  for (const PostedReceive& receive : receives_) receive.work->finish(error);
  receives_.clear();
  pending_sends_ = 0;
  claimed_ = 0;
}

}  // namespace syntony
