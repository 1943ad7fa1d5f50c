#include "core/ucx/ucx_transport.hpp"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "core/process/log.hpp"

namespace syntony {

using Clock = std::chrono::steady_clock;

UcxTransport::UcxTransport(const StreamShape& shape, const GroupIdentity& identity, std::shared_ptr<UcxWorker> worker,
                           std::span<const std::uint32_t> remote, std::span<const std::string> addresses)
    : shape_(shape),
      identity_(identity),
      addresses_(identity.ranks),
      link_of_rank_(identity.ranks),
      worker_(std::move(worker)) {
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

void UcxTransport::take(const void* header, std::size_t header_bytes, void* data, std::size_t bytes, bool rendezvous) {
  MessageHeader message;
  const bool long_enough = header_bytes >= kCreditBytes;
  if (long_enough) std::memcpy(&message, header, std::min(header_bytes, sizeof(message)));
  try {
    if (!long_enough || header_bytes != message.bytes() || message.to != identity_.rank || !remote(message.from) ||
        !link_to(message.from).sent(message)) {
      if (std::exchange(strangers_, true)) return;
      log(LogLevel::warn, [] { return std::string("ucx: a message came that is not this group's, and was dropped"); });
      return;
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
    link->rest();
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

// What is there already is taken before sleep, and progress() then says that something has moved.
void UcxTransport::sleeping(bool asleep) {
  if (!asleep) return;
  for (int turn = 0; turn < 8 && !worker_->arm(); ++turn) moved_ |= worker_->progress();
}

}  // namespace syntony
