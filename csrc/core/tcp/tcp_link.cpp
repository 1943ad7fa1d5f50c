#include "core/tcp/tcp_link.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/sizes.hpp"
#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {
namespace {

/// Payloads from this size on are cheaper to send with their own system call than to copy. (Smaller ones are sent
/// together.)
constexpr std::size_t kWorthACall = 32_KiB;

}  // namespace

TcpLink::TcpLink(const StreamShape& shape, const GroupIdentity& identity, std::uint32_t rank, std::size_t flows,
                 Requests requests)
    : FrameLink(shape, identity, rank),
      requests_(std::move(requests)),
      flows_(flows),
      numbers_(flows),
      used_(flows),
      sent_(std::size_t{shape.channels} * shape.windows, shape.frames()) {
  std::iota(numbers_.begin(), numbers_.end(), std::uint16_t{0});
  std::iota(used_.begin(), used_.end(), std::size_t{0});
}

void TcpLink::redirect(std::span<const std::byte> from, std::byte* to) {
  for (TcpFlow& flow : flows_) flow.redirect(from, to);
}

void TcpLink::open(std::uint16_t number, TcpStream socket, Wires::Watched watched, std::string endpoint) {
  const std::size_t flow = flow_of(number);
  called_ = true;
  name_endpoint(std::move(endpoint));
  const bool again = !in_use(flow);
  if (again) flows_[flow] = TcpFlow();
  flows_[flow].open(std::move(socket), std::move(watched));
  if (again) restore(flow, number);
}

void TcpLink::give_up(const Error& why) {
  if (lost()) return;
  for (TcpFlow& flow : flows_) flow.forget_unsent();
  miss(why);
}

void TcpLink::post(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload) {
  enqueue(flow_for(key, header), key, number, header, payload);
  if (!std::exchange(called_, true)) requests_.call();
}

void TcpLink::enqueue(TcpFlow& flow, StreamKey key, std::uint64_t number, const FrameHeader& header,
                      const std::byte* payload) {
  const FramePrefix prefix = data_prefix(key, number);
  const Priority priority = shape().priority_of(key.window);
  if (!has_spare()) return flow.push_in_parts(prefix, header, payload, priority);
  sent_.note(index(key), {.number = number,
                          .flow = static_cast<std::size_t>(&flow - flows_.data()),
                          .header = header,
                          .payload = payload});
  flow.push(prefix, header, payload, priority);
}

void TcpLink::pass(StreamKey key, std::uint64_t number, const FrameHeader& header, const std::byte* payload,
                   std::byte* slot) {
  TcpFlow& flow = flow_for(key, header);
  if (header.length < kWorthACall || !flow.writable() || flow.unsent_entries() > 0) {
    FrameLink::pass(key, number, header, payload, slot);
    return;
  }
  pay_credits(true);
  if (has_spare()) {  // another flow may have to send it again
    std::memcpy(slot, payload, header.length);
    enqueue(flow, key, number, header, slot);
    unwatched_ = true;
    if (flow.write() == TcpFlow::Outcome::ended) end(flow);
    return;
  }
  enqueue(flow, key, number, header, payload);
  if (flow.write() == TcpFlow::Outcome::ended) {
    end(flow);
  } else {
    flow.keep_last(slot);
  }
}

// The slices of every message are dealt to the flows starting with the same flow, so on every flow an operation's
// slices come before those of later operations, which never take part of the wire from it. A long slice goes to another
// flow if that is ahead by more than a slice: the wires may have unequal rates, and those may change.
TcpFlow& TcpLink::flow_for(StreamKey key, const FrameHeader& header) {
  TcpFlow& next = flows_[used_[(header.slice + key.channel) % used_.size()]];
  if (used_.size() == 1 || header.length <= StreamShape::kShortFrame) return next;
  TcpFlow* ahead = &next;
  const std::size_t most = next.backlog();
  std::size_t least = most;
  for (const std::size_t flow : used_) {
    if (&flows_[flow] == &next || least <= header.length) continue;
    if (const std::size_t backlog = flows_[flow].backlog(); backlog + header.length < least) {
      least = backlog;
      ahead = &flows_[flow];
    }
  }
  return *ahead;
}

bool TcpLink::wants_write() const {
  return must_pay() ||
         std::ranges::any_of(flows_, [](const TcpFlow& flow) { return flow.writable() && flow.unsent_entries() > 0; });
}

bool TcpLink::unsent() const {
  return must_pay() || std::ranges::any_of(flows_, [](const TcpFlow& flow) { return flow.unsent_entries() > 0; });
}

bool TcpLink::blocked() const {
  return std::ranges::any_of(flows_, [](const TcpFlow& flow) { return !flow.writable() && flow.unsent_entries() > 0; });
}

TcpFlow& TcpLink::flow_for_credit() {
  return flows_[*std::ranges::min_element(used_, {}, [this](std::size_t flow) {
    // An open flow first: the credited frames came over it.
    return std::pair(flows_[flow].socket() < 0, flows_[flow].unsent_entries());
  })];
}

void TcpLink::pay_credits(bool all) {
  if (!owes_credits()) return;
  FrameLink::pay_credits([all](const FrameReceiver& receiver) { return all || receiver.due(); },
                         [this](const FramePrefix& credit) { flow_for_credit().push(credit); });
}

bool TcpLink::write(bool quiet) {
  // Credits of one pass are sent with its frames, in the same system call. Alone they would cost a small operation as
  // much again.
  const bool sends = std::ranges::any_of(flows_, [](const TcpFlow& flow) { return flow.unsent_entries() > 0; });
  pay_credits(quiet || sends || has_spare());
  bool moved = false;
  for (TcpFlow& flow : flows_) {
    const TcpFlow::Outcome outcome = flow.write();
    moved |= outcome == TcpFlow::Outcome::moved;
    if (outcome == TcpFlow::Outcome::ended) end(flow);
  }
  unwatched_ |= moved && has_spare();
  return moved;
}

bool TcpLink::flushed() const {
  if (lost()) return true;
  return ended_.empty() && !must_pay() && std::ranges::all_of(flows_, [](const TcpFlow& flow) {
           return flow.unsent_entries() == 0 && acknowledged(flow.socket());
         });
}

bool TcpLink::read(TcpFlow& flow, TcpFlow::Aside& aside) {
  switch (flow.read(*this, aside)) {
    case TcpFlow::Outcome::moved:
      return true;
    case TcpFlow::Outcome::nothing:
      return false;
    case TcpFlow::Outcome::ended:
      end(flow);
      return true;
    case TcpFlow::Outcome::refused:
      for (TcpFlow& each : flows_) each.shut();
      refuse();
      return true;
  }
  return false;
}

void TcpLink::break_off(int failure) {
  if (lost()) return;
  std::size_t undelivered = 0;
  for (TcpFlow& flow : flows_) {
    undelivered += flow.unsent_frames();
    flow.forget_unsent();
  }
  if (failure == EPROTO) {
    complain(sentence_of(failure));
    return refuse();
  }
  lose(failure == 0 ? "closed its connection" : "lost its connection (" + sentence_of(failure) + ")", undelivered);
}

}  // namespace syntony
