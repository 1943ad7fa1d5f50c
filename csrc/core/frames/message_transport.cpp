#include "core/frames/message_transport.hpp"

#include <poll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "core/process/host.hpp"
#include "core/process/log.hpp"

namespace syntony {

MessageTransport::MessageTransport(std::string wire, const StreamShape& shape, const GroupIdentity& identity,
                                   std::span<const std::uint32_t> remote, std::span<const std::string> addresses,
                                   int descriptor)
    : wire_(std::move(wire)),
      shape_(shape),
      identity_(identity),
      addresses_(identity.ranks),
      link_of_rank_(identity.ranks),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
  if (!timer_) throw Error(Error::Kind::system, system_sentence("cannot create a timer"));
  descriptors_[descriptor_count_++] = timer_.get();
  if (descriptor != kNoDescriptor) descriptors_[descriptor_count_++] = descriptor;
  for (const std::uint32_t rank : remote) addresses_.at(rank) = addresses[rank];
}

bool MessageTransport::remote(std::uint32_t peer) const {
  return peer < addresses_.size() && !addresses_[peer].empty();
}

MessageLink& MessageTransport::link_to(std::uint32_t peer) {
  if (!remote(peer)) {
    throw Error(Error::Kind::invalid, "rank " + std::to_string(peer) + " is not reached by " + wire_);
  }
  std::unique_ptr<MessageLink>& link = link_of_rank_[peer];
  if (!link) {
    link = make_link(peer, addresses_[peer]);
    links_.push_back(link.get());
  }
  return *link;
}

std::vector<std::unique_ptr<MessageLink>> MessageTransport::take_links() {
  links_.clear();
  return std::exchange(link_of_rank_, {});
}

Sender& MessageTransport::sender(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) {
  return link_to(peer).sender({channel, window});
}

Receiver& MessageTransport::receiver(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) {
  return link_to(peer).receiver({channel, window});
}

MessageLink* MessageTransport::recognize(std::span<const std::byte> bytes, MessageHeader& message) {
  const bool long_enough = bytes.size() >= kCreditBytes;
  if (long_enough) std::memcpy(&message, bytes.data(), std::min(bytes.size(), sizeof(message)));
  if (long_enough && bytes.size() >= message.bytes() && message.to == identity_.rank && remote(message.from)) {
    MessageLink& link = link_to(message.from);
    if (link.sent(message)) return &link;
  }
  if (!std::exchange(strangers_, true)) {
    log(LogLevel::warn, [this] { return wire_ + ": a message came that is not this group's, and was dropped"; });
  }
  return nullptr;
}

bool MessageTransport::progress() {
  bool moved = std::exchange(moved_, false);
  moved |= poll();
  if (caught_) std::rethrow_exception(std::exchange(caught_, nullptr));
  for (MessageLink* link : links_) {
    link->settle();
    moved |= link->write();
    const bool sent = link->rest();
    moved |= sent && asleep_;  // the descriptor is no longer armed
  }
  for (MessageLink* link : links_) {
    if (std::optional<Error> fault = link->take_fault()) throw *std::move(fault);
  }
  return moved;
}

void MessageTransport::wake() {
  for (MessageLink* link : links_) link->write();
}

bool MessageTransport::unsent() const {
  return std::ranges::any_of(links_, [](const MessageLink* link) { return link->unsent(); });
}

bool MessageTransport::drain(std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + timeout;
  try {
    for (;;) {
      const bool moved = progress();
      if (std::ranges::all_of(links_, [](const MessageLink* link) { return link->handed_over(); })) return true;
      if (Clock::now() >= deadline) return false;
      pollfd events{descriptors_[descriptor_count_ - 1], POLLIN, 0};
      if (!moved) ::poll(&events, 1, 1);
    }
  } catch (const Error&) {
    return false;
  }
}

// What is there already is taken before sleeping, and progress() then reports that something has moved. Wires may also
// refuse to arm although nothing moves: a peer was interrupted in the middle of a message, or its memory is full, and
// no event tells when that is over. Then the sleep is short.
void MessageTransport::sleeping(bool asleep) {
  asleep_ = asleep;
  if (!asleep || arm()) return;
  moved_ = poll();
  if (moved_) return;
  constexpr long kShortNap = 50'000;  // ns
  const itimerspec nap{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = kShortNap}};
  ::timerfd_settime(timer_.get(), 0, &nap, nullptr);
}

}  // namespace syntony
