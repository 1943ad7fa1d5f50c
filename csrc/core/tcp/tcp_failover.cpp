// What a link does when one of several sockets to its peer fails, as it does when a network card or a cable dies:
//
//      rank 0 ──── eth0 ════════════ eth0 ──── rank 1    eth1 no longer answers: every frame that went over it and was
//             ╲─── eth1 ═══ ╳ ══════ eth1 ───╱           not released is sent again over eth0, once
//
//  - Frames keep their numbers, so one that had arrived nevertheless is recognized, and discarded.
//  - Both ranks close a socket that one of them has lost: `lost` goes over each of the others, ahead of what is sent
//    again. So no frame arrives over one socket while it does over another.
//  - Credits count from the beginning, so all of them are given again.
//  - Another socket takes its place when the card recovers (meeting/tcp_replacements.cpp). `lost` names a socket by its
//    number, so one that comes late is not taken to mean the new one.
//
// A socket is lost when the kernel gives it up; when it has ended and the others have not within kGrace (they would
// have if the peer's process had); or when its peer has left kUnanswered repetitions unanswered but acknowledged
// something else in the meantime, a probe if need be. The last is a judgement, which two ranks could make differently,
// each closing the socket that the other keeps. So only the lower rank makes it; the higher one asks it to. A link
// whose sockets are all silent keeps them.
//
// After R2CCL (Wang et al., arXiv 2512.25059), which goes back to the last acknowledged chunk and sends over another
// network card from there.
#include <algorithm>
#include <cerrno>

#include "core/process/log.hpp"
#include "core/tcp/meeting/tcp_address.hpp"
#include "core/tcp/meeting/tcp_interfaces.hpp"
#include "core/tcp/meeting/tcp_socket.hpp"
#include "core/tcp/tcp_link.hpp"
#include "core/tcp/tcp_wire.hpp"

namespace syntony {
namespace {

constexpr std::chrono::milliseconds kGrace{200};
/// The kernel repeats after 200 ms at the earliest, and waits twice as long each time: lost after 0.6 s.
constexpr unsigned kUnanswered = 2;
constexpr std::chrono::milliseconds kMargin{100};

TcpAddress local_of(const TcpFlow& flow) { return flow.socket() < 0 ? TcpAddress() : TcpAddress::local(flow.socket()); }

}  // namespace

bool TcpLink::open_elsewhere(std::size_t flow) const {
  return std::ranges::any_of(used_, [&](std::size_t other) { return other != flow && flows_[other].socket() >= 0; });
}

FramePrefix TcpLink::about(std::uint32_t kind, std::size_t flow) const {
  return {.kind = kind, .token = identity().prefix_token(), .number = numbers_[flow]};
}

bool TcpLink::expects(std::uint16_t number) const {
  const std::size_t flow = flow_of(number);
  if (lost()) return false;
  if (in_use(flow)) return number == numbers_[flow];
  return number > numbers_[flow] && std::ranges::find(ended_, flow, &Ended::flow) == ended_.end();
}

/// A socket has taken the place of a lost one.
void TcpLink::restore(std::size_t flow, std::uint16_t number) {
  numbers_[flow] = number;
  used_.insert(std::ranges::upper_bound(used_, flow), flow);
  const TcpAddress local = local_of(flows_[flow]);
  log_always(peer() + ": the connection over " + interface_of(local) + ", " + local.text() + ", is back; " +
             std::to_string(used_.size()) + " of " + std::to_string(flows_.size()) + " are in use");
}

/// The connection below `flow` has ended.
void TcpLink::end(TcpFlow& flow) {
  if (lost()) return flow.hang_up();
  const auto place = static_cast<std::size_t>(&flow - flows_.data());
  if (used_.size() == 1) return break_off(flow.failure());  // others are open, or being made
  const int failure = flow.failure();
  if (failure != 0 && failure != ECONNRESET && failure != EPIPE) {
    return abandon(place, local_of(flow), sentence_of(failure));
  }
  // The peer has closed it, perhaps by ending.
  std::erase(used_, place);
  ended_.push_back({.flow = place, .at = Clock::now(), .local = local_of(flow)});
  flow.hang_up();
  unwatched_ = true;
}

bool TcpLink::told(const FramePrefix& prefix) {
  if (!known(prefix)) return false;
  if (prefix.kind != FramePrefix::kLost) return true;
  const std::size_t flow = prefix.number % flows_.size();
  const auto ended = std::ranges::find(ended_, flow, &Ended::flow);
  if (prefix.number > numbers_[flow]) {
    if (prefix.number >= kControlFlow || in_use(flow) || ended != ended_.end()) {
      complain("it has lost connection " + std::to_string(prefix.number) + " of " + std::to_string(flows_.size()));
      return false;
    }
    // It had a socket that has not been one here yet.
    numbers_[flow] = static_cast<std::uint16_t>(prefix.number);
    requests_.replace(numbers_[flow], {});
  } else if (prefix.number == numbers_[flow] && !lost() && open_elsewhere(flow)) {
    abandon(flow, ended == ended_.end() ? local_of(flows_[flow]) : ended->local, "the other end has lost it");
  }
  return true;
}

/// The others take over the frames of `flow`, of which at least one is open.
void TcpLink::abandon(std::size_t flow, const TcpAddress& local, const std::string& why) {
  const auto ended = std::ranges::find(ended_, flow, &Ended::flow);
  if (ended == ended_.end() && std::erase(used_, flow) == 0) return;  // others have taken over
  if (ended != ended_.end()) ended_.erase(ended);
  expect_repetitions();
  if (const std::optional<FramePrefix> frame = flows_[flow].arriving()) interrupted(*frame);
  for (const std::size_t other : used_) flows_[other].push(about(FramePrefix::kLost, flow));
  const std::size_t again = send_again(flow);
  flows_[flow].shut();
  owe_all_credits();
  unwatched_ = true;
  if (open_elsewhere(flow)) requests_.avoid(local, used_.front());
  requests_.replace(numbers_[flow], local);
  log_always(peer() + ": the connection over " + interface_of(local) + ", " + local.text() + ", is lost: " + why +
             "; " + std::to_string(again) + " frames are sent again over the other " + std::to_string(used_.size()) +
             " of " + std::to_string(flows_.size()));
}

std::size_t TcpLink::send_again(std::size_t flow) {
  std::size_t count = 0;
  for (std::size_t stream = 0; stream < sent_.streams(); ++stream) {
    if (!sent_.used(stream)) continue;
    const StreamKey key = stream_at(stream);
    sent_.of(stream, flow, sender(key).released(), [&](SentFrame& frame) {
      const FramePrefix prefix = data_prefix(key, frame.number);
      frame.taken = frame.taken || !flows_[flow].queues(prefix);
      TcpFlow& other = flow_for(key, frame.header);
      frame.flow = static_cast<std::size_t>(&other - flows_.data());
      other.push(prefix, frame.header, frame.payload, shape().priority_of(prefix.window), frame.taken);
      ++count;
    });
  }
  return count;
}

/// It does not answer, and others do.
void TcpLink::suspect(std::size_t flow) {
  if (identity().rank < rank()) {
    return abandon(flow, local_of(flows_[flow]), "it does not answer, and others do");
  }
  for (const std::size_t other : used_) {
    if (other != flow) flows_[other].push(about(FramePrefix::kLost, flow));
  }
}

bool TcpLink::look_after(Clock::time_point now) {
  if (lost()) return false;
  for (const Ended& ended : std::vector(ended_)) {
    if (now - ended.at >= kGrace) abandon(ended.flow, ended.local, "it has ended, and others have not");
  }
  std::vector<std::pair<std::size_t, SocketPulse>> pulses;
  for (const std::size_t flow : used_) {
    if (flows_[flow].socket() >= 0) pulses.emplace_back(flow, pulse_of(flows_[flow].socket()));
  }
  bool waiting = !ended_.empty();
  for (const auto& [flow, pulse] : pulses) {
    waiting |= pulse.waiting || flows_[flow].unsent_entries() > 0;
    if (pulse.unanswered == 0) continue;
    const bool others_answer = std::ranges::any_of(pulses, [&, silent = pulse.silent](const auto& other) {
      return other.second.unanswered == 0 && other.second.silent + kMargin < silent;
    });
    if (others_answer && pulse.unanswered >= kUnanswered) {
      suspect(flow);
      return true;
    }
    for (const auto& [other, its] : pulses) {
      if (!others_answer && its.unanswered == 0 && flows_[other].unsent_entries() == 0) {
        flows_[other].push(about(FramePrefix::kProbe, other));
      }
    }
  }
  return waiting;
}

}  // namespace syntony
