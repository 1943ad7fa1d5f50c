#include "core/ucx/ucx_transport.hpp"

#include <poll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "core/process/host.hpp"
#include "core/process/log.hpp"

namespace syntony {

using Clock = std::chrono::steady_clock;

UcxTransport::UcxTransport(const StreamShape& shape, const GroupIdentity& identity, std::shared_ptr<UcxWorker> worker,
                           std::span<const std::uint32_t> remote, std::span<const std::string> addresses)
    : shape_(shape),
      identity_(identity),
      addresses_(identity.ranks),
      link_of_rank_(identity.ranks),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
      worker_(std::move(worker)) {
  if (!timer_) throw Error(Error::Kind::system, system_sentence("cannot create a timer"));
  descriptors_ = {worker_->descriptor(), timer_.get()};
  for (const std::uint32_t rank : remote) addresses_.at(rank) = addresses[rank];
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessage;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = [](void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                  const ucp_am_recv_param_t* param) {
    static_cast<UcxTransport*>(self)->take(header, header_bytes, data, bytes,
                                           (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
    return UCS_OK;  // a rendezvous that was not begun is refused by this, and its sender told
  };
  handler.arg = this;
  const ucs_status_t status = worker_->library().worker_set_am_recv_handler(worker_->handle(), &handler);
  if (status != UCS_OK) {
    throw Error(Error::Kind::system,
                worker_->name() + " takes no active messages: " + worker_->library().sentence(status));
  }
}

UcxTransport::~UcxTransport() {
  constexpr std::chrono::milliseconds kLongest{500};
  const Clock::time_point deadline = Clock::now() + kLongest;
  for (UcxLink* link : links_) {
    while (!link->closed() && Clock::now() < deadline) worker_->progress();
  }
}

bool UcxTransport::remote(std::uint32_t peer) const { return peer < addresses_.size() && !addresses_[peer].empty(); }

UcxLink& UcxTransport::link_to(std::uint32_t peer) {
  if (!remote(peer)) {
    throw Error(Error::Kind::invalid, "rank " + std::to_string(peer) + " is not reached by UCX");
  }
  std::unique_ptr<UcxLink>& link = link_of_rank_[peer];
  if (!link) {
    link = std::make_unique<UcxLink>(shape_, identity_, peer, *worker_, addresses_[peer]);
    links_.push_back(link.get());
  }
  return *link;
}

Sender& UcxTransport::sender(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) {
  return link_to(peer).sender({channel, window});
}

Receiver& UcxTransport::receiver(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) {
  return link_to(peer).receiver({channel, window});
}

void UcxTransport::take(const void* header, std::size_t header_bytes, const void* data, std::size_t bytes,
                        bool rendezvous) {
  MessageHeader message;
  const bool long_enough = header_bytes >= kCreditBytes;
  if (long_enough) std::memcpy(&message, header, std::min(header_bytes, sizeof(message)));
  try {
    if (!long_enough || header_bytes < message.bytes() || message.to != identity_.rank || !remote(message.from) ||
        !link_to(message.from).sent(message)) {
      if (std::exchange(strangers_, true)) return;
      log(LogLevel::warn, [] { return std::string("ucx: a message came that is not this group's, and was dropped"); });
      return;
    }
    if (bytes == 0) {  // a short payload is part of the header
      data = static_cast<const std::byte*>(header) + message.bytes();
      bytes = header_bytes - message.bytes();
    }
    link_to(message.from).take(message, data, bytes, rendezvous);
  } catch (...) {
    if (!caught_) caught_ = std::current_exception();
  }
}

bool UcxTransport::progress() {
  bool moved = std::exchange(moved_, false);
  moved |= worker_->progress();
  if (caught_) std::rethrow_exception(std::exchange(caught_, nullptr));
  for (UcxLink* link : links_) {
    link->settle();
    moved |= link->write();
    const bool sent = link->rest();
    moved |= sent && asleep_;  // what was armed is not any more
  }
  for (UcxLink* link : links_) {
    if (std::optional<Error> fault = link->take_fault()) throw *std::move(fault);
  }
  return moved;
}

void UcxTransport::wake() {
  for (UcxLink* link : links_) link->write();
}

bool UcxTransport::unsent() const {
  return std::ranges::any_of(links_, [](const UcxLink* link) { return link->unsent(); });
}

bool UcxTransport::drain(std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  try {
    for (;;) {
      const bool moved = progress();
      if (!unsent()) return true;
      if (Clock::now() >= deadline) return false;
      pollfd events{worker_->descriptor(), POLLIN, 0};
      if (!moved) poll(&events, 1, 1);
    }
  } catch (const Error&) {
    return false;
  }
}

// What is there already is taken before sleep, and progress() then says that something has moved. UCX also refuses to
// arm where nothing moves: a peer was interrupted halfway through a message, or its memory is full, and no event tells
// when that is over. Then the sleep is a short one.
void UcxTransport::sleeping(bool asleep) {
  asleep_ = asleep;
  if (!asleep || worker_->arm()) return;
  moved_ = worker_->progress();
  if (moved_) return;
  constexpr long kShortNap = 50'000;  // ns
  const itimerspec nap{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = kShortNap}};
  ::timerfd_settime(timer_.get(), 0, &nap, nullptr);
}

}  // namespace syntony
