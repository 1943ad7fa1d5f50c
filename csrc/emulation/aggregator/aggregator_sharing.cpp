// Sums of an aggregator with shared slots: parts that find no slot are passed on to the server above, and replies come
// back.
#include <algorithm>
#include <chrono>
#include <string>

#include "emulation/aggregator/aggregator.hpp"

namespace syntony {
namespace {

constexpr std::chrono::milliseconds kStale{1000};  // an older slot is given to the next packet that arrives

}  // namespace

void Aggregator::share_part(Job& job, std::size_t child, const AggregationPacket& head, const std::byte* payload) {
  const bool again = head.has(AggregationPacket::kAgain);
  if (!again && !acceptable(job, head)) return;
  Slot* const ours = shared_.find(head.token, head.sequence);
  const bool helps = ours != nullptr && (ours->state == Slot::State::summed ||
                                         (ours->state == Slot::State::filling && !ours->seen[child]));
  if (head.depth > 0 || (again && !helps)) {
    // Others' parts of it are passed on, too: the missing one may have been passed on before.
    if (ours != nullptr) give_up(*ours);
    return pass_up(job, child, head, payload);
  }
  Slot& slot = shared_.at(head.token, head.sequence);
  if (ours == nullptr) {
    const bool taken = slot.state == Slot::State::filling || slot.state == Slot::State::summed;
    if (taken && Clock::now() - slot.opened < kStale) return pass_up(job, child, head, payload);
    if (taken) give_up(slot);
    slot.open(head, job.children.size(), (job.capacity + 63) / 64 * 64);
  }
  if (slot.state == Slot::State::passing) return pass_up(job, child, head, payload);
  switch (slot.put(child, head, payload)) {
    case Slot::Arrival::differs:
      return disagree(job, head, slot);
    case Slot::Arrival::complete:
      return hand_up(job, slot);
    case Slot::Arrival::again:
      if (slot.state != Slot::State::summed) return;
      if (Clock::now() - slot.sent_up > kQuiet) hand_up(job, slot);
      return answer(job, child, head, &slot);
    case Slot::Arrival::part:
    case Slot::Arrival::stale:
    case Slot::Arrival::early:
      return;
  }
}

/// A reply from above, with a sum or without: sent to the child whose part was passed on, or to all, which frees the
/// slot.
void Aggregator::share_sum(Job& job, const AggregationPacket& head, const std::byte* payload) {
  down_.clear();
  if (head.depth > 0) {
    const std::size_t child = head.path[0].child;
    if (child >= job.children.size() || job.children[child] == nullptr) return;
    AggregationPacket& below = down_.emplace_back(head, payload, &job.children[child]->place).head;
    std::ranges::copy(head.path.begin() + 1, head.path.end(), below.path.begin());
    --below.depth;
  } else if (head.kind == AggregationPacket::Kind::sum) {
    Slot* const slot = shared_.find(head.token, head.sequence);
    for (std::size_t child = 0; child < job.children.size(); ++child) {
      if (job.children[child] == nullptr) continue;
      AggregationPacket& below = down_.emplace_back(head, payload, &job.children[child]->place).head;
      if (slot != nullptr && slot->state == Slot::State::summed) {
        slot->waited_above = head.waited;
        below.waited = slot->waited(child, false);
      } else {
        below.flags |= AggregationPacket::kUnmeasured | AggregationPacket::kPassedOn;
      }
    }
    if (slot != nullptr) slot->state = Slot::State::free;
  }
  datagrams_.send(down_);
}

/// Sends a part to the one above, which learns from the path whose part it is.
void Aggregator::pass_up(Job& job, std::size_t child, AggregationPacket head, const std::byte* payload) {
  if (head.depth == kDeepestPath) {
    return fail(job, Error::Kind::invalid, kNobody,
                "more than " + std::to_string(kDeepestPath) + " aggregators above one another share their slots");
  }
  std::ranges::copy_backward(head.path.begin(), head.path.end() - 1, head.path.end());
  head.path[0] = {static_cast<std::uint16_t>(child), static_cast<std::uint16_t>(job.children.size())};
  ++head.depth;
  head.kind = AggregationPacket::Kind::part;
  head.from = job.least.front();
  const Datagrams::Message message{head, payload, &job.parent->place};
  datagrams_.send({&message, 1});
}

/// Passes its parts on, because the packet of that slot cannot be added here.
void Aggregator::give_up(Slot& slot) {
  const auto job = std::ranges::find_if(jobs_, [&slot](const Job& one) { return one.token[1] == slot.first.token; });
  const bool filling = slot.state == Slot::State::filling;
  slot.state = Slot::State::passing;
  for (std::size_t child = 0; filling && job != jobs_.end() && child < slot.seen.size(); ++child) {
    if (slot.seen[child]) pass_up(*job, child, slot.first, slot.part(child));
  }
}

}  // namespace syntony
