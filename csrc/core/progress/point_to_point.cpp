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
    : rank_(rank),
      transports_(transports),
      window_(window),
      slot_bytes_(slot_bytes),
      header_(header),
      sent_(sent),
      outgoing_(transports.size()),
      arrivals_(transports.size()),
      next_message_(transports.size(), 0) {}

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
  Arrival& arrival = arrivals_[rank_].back();
  arrival.data.assign(message.data, message.data + message.bytes);
  arrival.received = message.bytes;
  arrival.next_slice = 1;
  settle(rank_);
  message.work->finish(nullptr);
}

void PointToPoint::receive(PostedReceive receive) {
  for (std::uint32_t peer = 0; peer < arrivals_.size(); ++peer) {
    if (receive.source != kAnySource && receive.source != static_cast<int>(peer)) continue;
    for (Arrival& arrival : arrivals_[peer]) {
      if (arrival.claimant || arrival.tag != receive.tag) continue;
      arrival.claimant = std::move(receive);
      arrival.claimant->work->record().started();
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
    for (std::deque<OutgoingMessage>& queue : outgoing_) moved |= push(queue);
  }
  // With nothing posted, frames stay in their slots, unless we send: then a peer may be waiting for us to make room.
  if (busy()) {
    for (std::uint32_t peer = 0; peer < transports_.size(); ++peer) moved |= pull(peer);
  }
  return moved;
}

bool PointToPoint::push(std::deque<OutgoingMessage>& queue) {
  bool moved = false;
  while (!queue.empty()) {
    OutgoingMessage& message = queue.front();
    Sender& sender = transports_[message.destination]->sender(message.destination, kChannel, window_);
    const std::size_t length = std::min<std::size_t>(slot_bytes_, message.bytes - message.sent);
    std::byte* room = sender.reserve(length);
    if (room == nullptr) break;
    message.work->record().started();
    FrameHeader header = header_;
    header.sequence = next_message_[message.destination];
    header.fingerprint = message.tag;
    header.slice = message.slice++;
    header.length = static_cast<std::uint32_t>(length);
    header.total = message.bytes;
    if (header.length > 0) std::memcpy(room, message.data + message.sent, header.length);
    sender.commit(header);
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
  if (transports_[peer] == nullptr) return false;
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
  std::list<Arrival>& arrivals = arrivals_[peer];
  const bool interrupted = header.slice == 0 && !arrivals.empty() && !arrivals.back().complete();
  if (header.slice == 0 && !interrupted) begin(peer, header);
  if (header.token != header_.token || header.group != header_.group || interrupted || arrivals.empty() ||
      arrivals.back().next_slice != header.slice || header.total != arrivals.back().total ||
      header.length > header.total - arrivals.back().received) {
    throw Error(Error::Kind::mismatch, "rank " + std::to_string(peer) + " sent a point-to-point frame out of order",
                {static_cast<int>(peer)});
  }
  Arrival& arrival = arrivals.back();
  const bool direct = arrival.claimant && arrival.data.empty() && arrival.claimant->bytes == arrival.total;
  if (header.length > 0) {
    if (direct) {
      std::memcpy(arrival.claimant->data + arrival.received, payload, header.length);
    } else {
      arrival.data.resize(arrival.received + header.length);  // never more than has come, whatever was announced
      std::memcpy(arrival.data.data() + arrival.received, payload, header.length);
    }
  }
  arrival.received += header.length;
  ++arrival.next_slice;
  if (arrival.complete()) settle(peer);
}

void PointToPoint::begin(std::uint32_t peer, const FrameHeader& header) {
  Arrival arrival;
  arrival.tag = header.fingerprint;
  arrival.total = header.total;
  const auto match = std::ranges::find_if(receives_, [&](const PostedReceive& receive) {
    return receive.tag == arrival.tag && (receive.source == kAnySource || receive.source == static_cast<int>(peer));
  });
  if (match != receives_.end()) {
    arrival.claimant = std::move(*match);
    arrival.claimant->work->record().started();
    receives_.erase(match);
    ++claimed_;
  }
  arrivals_[peer].push_back(std::move(arrival));
}

// Hands every complete and claimed message of `peer` to its receive.
void PointToPoint::settle(std::uint32_t peer) {
  for (auto arrival = arrivals_[peer].begin(); arrival != arrivals_[peer].end();) {
    if (arrival->complete() && arrival->claimant) {
      deliver(peer, *arrival);
      arrival = arrivals_[peer].erase(arrival);
    } else {
      ++arrival;
    }
  }
}

void PointToPoint::deliver(std::uint32_t peer, Arrival& arrival) {
  const PostedReceive& receive = *arrival.claimant;
  --claimed_;
  receive.work->source_ = static_cast<int>(peer);
  if (receive.bytes != arrival.total) {
    receive.work->finish(
        std::make_exception_ptr(Error(Error::Kind::mismatch,
                                      "rank " + std::to_string(peer) + " sent " + std::to_string(arrival.total) +
                                          " bytes with tag " + std::to_string(arrival.tag) + " to rank " +
                                          std::to_string(rank_) + ", which expected " + std::to_string(receive.bytes),
                                      {static_cast<int>(peer), static_cast<int>(rank_)})));
    return;
  }
  if (!arrival.data.empty()) std::memcpy(receive.data, arrival.data.data(), arrival.total);
  receive.work->finish(nullptr);
}

std::vector<std::uint32_t> PointToPoint::waiting_for() const {
  std::vector<std::uint32_t> peers;
  for (std::uint32_t peer = 0; peer < transports_.size(); ++peer) {
    if (peer == rank_) continue;
    const bool sending = !outgoing_[peer].empty();
    const bool arriving =
        !arrivals_[peer].empty() && !arrivals_[peer].back().complete() && arrivals_[peer].back().claimant;
    const bool expecting =
        std::ranges::find(receives_, static_cast<int>(peer), &PostedReceive::source) != receives_.end();
    if (sending || arriving || expecting) peers.push_back(peer);
  }
  return peers;
}

bool PointToPoint::waits_for_anyone() const {
  return std::ranges::find(receives_, kAnySource, &PostedReceive::source) != receives_.end();
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
  for (const std::deque<OutgoingMessage>& queue : outgoing_) {
    if (queue.empty() || now < queue.front().lifetime.deadline) continue;
    return "send timed out on rank " + std::to_string(rank_) + ": rank " + std::to_string(queue.front().destination) +
           " does not receive (tag " + std::to_string(queue.front().tag) + ", " + std::to_string(queue.front().sent) +
           " of " + std::to_string(queue.front().bytes) + " bytes are on their way)";
  }
  for (std::uint32_t peer = 0; peer < arrivals_.size(); ++peer) {
    if (arrivals_[peer].empty()) continue;
    const Arrival& last = arrivals_[peer].back();
    if (last.complete() || !last.claimant || now < last.claimant->lifetime.deadline) continue;
    return "receive timed out on rank " + std::to_string(rank_) + ": rank " + std::to_string(peer) + " stopped after " +
           std::to_string(last.received) + " of " + std::to_string(last.total) + " bytes";
  }
  return std::nullopt;
}

void PointToPoint::fail(const std::exception_ptr& error) {
  for (std::deque<OutgoingMessage>& queue : outgoing_) {
    for (const OutgoingMessage& message : queue) message.work->finish(error);
    queue.clear();
  }
  for (std::list<Arrival>& arrivals : arrivals_) {
    for (const Arrival& arrival : arrivals) {
      if (arrival.claimant) arrival.claimant->work->finish(error);
    }
    arrivals.clear();
  }
  for (const PostedReceive& receive : receives_) receive.work->finish(error);
  receives_.clear();
  pending_sends_ = 0;
  claimed_ = 0;
}

}  // namespace syntony
