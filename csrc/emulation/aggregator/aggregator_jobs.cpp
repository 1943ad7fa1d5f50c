// Jobs of an aggregator: who may join, how packets are handled, and how a job ends.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "core/in_network/aggregation_way.hpp"
#include "core/tcp/meeting/tcp_socket.hpp"
#include "emulation/aggregator/aggregator.hpp"

namespace syntony {
namespace {

using std::chrono::milliseconds;
using Kind = AggregationFrame::Kind;

constexpr std::size_t kWidest = 65536;  // window of aggregators that hold no sums

std::string rank_named(std::uint32_t rank) { return "rank " + std::to_string(rank); }

std::string left(std::uint32_t rank, std::uint32_t operation) {
  return rank_named(rank) + " left the job before operation " + std::to_string(operation);
}

std::string brought(const AggregationPacket& packet) {
  return std::to_string(packet.elements) + " elements in " +
         std::string(name_of(static_cast<NumberFormat>(packet.format)));
}

std::string told(const AggregationPacket& packet) {
  return "operation " + std::to_string(packet.operation) + " (" + brought(packet) + ")";
}

std::string name_of_aggregator(const TcpAddress& address) { return "the aggregator at " + address.text(); }

}  // namespace

// ---- who and what ---------------------------------------------------------------------------------------------------

void Aggregator::greet(Peer& peer, const AggregationHello& hello, const std::string& above) {
  peer.deadline = Clock::time_point::max();
  peer.token = hello.token[0];
  if (hello.version != kAggregationVersion) {
    return refuse(peer, Error::Kind::mismatch, kNobody,
                  "the aggregator speaks version " + std::to_string(kAggregationVersion) + ", this worker version " +
                      std::to_string(hello.version));
  }
  if (hello.ranks < 1 || hello.ranks > kMostWorkers || hello.rank >= hello.ranks || hello.members < 1 ||
      hello.members > hello.under || hello.under > hello.ranks || (above.empty() && hello.under < hello.ranks) ||
      hello.port < 1 || hello.port > 65535 || hello.window < 1 || hello.slot_bytes < 64) {
    return refuse(peer, Error::Kind::invalid, kNobody,
                  rank_named(hello.rank) + " of " + std::to_string(hello.ranks) +
                      " is not a worker; an aggregator takes 1 to " + std::to_string(kMostWorkers));
  }
  if (!options_.secret.empty() && hello.proof != proof_of(options_.secret, peer.nonce, hello, above)) {
    return refuse(peer, Error::Kind::aborted, hello.rank,
                  rank_named(hello.rank) +
                      " does not know the secret of the aggregator: SYNTONY_SECRET should be set to one value there "
                      "and at all workers");
  }
  auto job = std::ranges::find(jobs_, hello.token, &Job::token);
  const bool full = tenants() >= options_.tenants;
  const std::string serves = "the aggregator serves " + std::to_string(tenants()) + " of " +
                             std::to_string(options_.tenants) + " jobs already";
  if (job == jobs_.end()) {
    if (full) return refuse(peer, Error::Kind::aborted, kNobody, serves);
    if (options_.shared && above.empty()) {
      return refuse(
          peer, Error::Kind::invalid, kNobody,
          "the aggregator shares its slots, and so needs a server above it: SYNTONY_AGGREGATOR goes on to one");
    }
    const std::size_t slots = options_.shared ? options_.slots : options_.slots / options_.tenants;
    const std::size_t kept = options_.on_arrival ? 2 : hello.under + 1;  // the parts and their sum
    if (slots * capacity_ * kept > options_.memory) {
      return refuse(
          peer, Error::Kind::aborted, kNobody,
          "slots for " + std::to_string(hello.under) + " workers would take more memory than the aggregator may use");
    }
    job = jobs_.emplace(jobs_.end());
    job->token = hello.token;
    job->ranks = hello.ranks;
    job->under = hello.under;
    job->above = above;
    job->child_of.assign(hello.ranks, -1);
    job->window = options_.shared ? kWidest : window_of(slots, options_.slot_bytes);
    job->slot_bytes = options_.slot_bytes;
    job->timeout_ms = hello.timeout_ms;
    job->deadline = Clock::now() + milliseconds(hello.timeout_ms);
  }
  if (job->ranks != hello.ranks) {
    const std::string others = std::to_string(job->ranks);
    refuse(peer, Error::Kind::mismatch, hello.rank, "this job has " + others + " workers");
    return fail(*job, Error::Kind::mismatch, hello.rank,
                rank_named(hello.rank) + " says that the job has " + std::to_string(hello.ranks) +
                    " workers, the others say " + others);
  }
  if (job->child_of[hello.rank] >= 0 || job->complete) {
    return refuse(peer, Error::Kind::mismatch, hello.rank, "this job has a " + rank_named(hello.rank) + " already");
  }
  if (job->under != hello.under || job->above != above || job->joined + hello.members > job->under) {
    return refuse(peer, Error::Kind::mismatch, hello.rank, "the ranks disagree about their ways to the aggregators");
  }
  job->children.push_back(&peer);
  job->child_of[hello.rank] = 0;  // a placeholder; known when all have joined
  job->window = std::min<std::size_t>(job->window, hello.window);
  job->slot_bytes = std::min<std::size_t>(job->slot_bytes, hello.slot_bytes);
  peer.job = &*job;
  peer.rank = hello.rank;
  peer.members = hello.members;
  peer.place = TcpAddress::remote(peer.socket.get()).at(static_cast<std::uint16_t>(hello.port));
  peer.name = hello.members > 1 ? name_of_aggregator(peer.place) : rank_named(hello.rank);
  if (job->joined + hello.members == job->under && full) return fail(*job, Error::Kind::aborted, kNobody, serves);
  job->joined += hello.members;
  if (job->joined == job->under) completed(*job);
}

/// Jobs whose workers have all joined: until then a job holds nothing that another one could need.
std::size_t Aggregator::tenants() const {
  return static_cast<std::size_t>(std::ranges::count_if(jobs_, &Job::complete));
}

void Aggregator::completed(Job& job) {
  job.complete = true;
  job.deadline = Clock::time_point::max();
  std::ranges::sort(job.children, {}, &Peer::rank);
  for (std::size_t child = 0; child < job.children.size(); ++child) {
    job.least.push_back(job.children[child]->rank);
    job.child_of[job.least.back()] = static_cast<std::int32_t>(child);
  }
  if (job.above.empty()) {
    welcome(job, job.window, job.slot_bytes);
  } else {
    dial(job);
  }
}

void Aggregator::dial(Job& job) {
  try {
    const AggregationWay way(job.above);
    UniqueFd socket = open_tcp_socket(way.address.family());
    const bool at_once = ::connect(socket.get(), way.address.get(), way.address.length()) == 0;
    if (!at_once && errno != EINPROGRESS) return;  // retried at the next heartbeat
    Peer& parent = peers_.emplace_back();
    parent.socket = std::move(socket);
    parent.token = job.token[0];
    parent.job = &job;
    parent.above = true;
    parent.connected = at_once;
    parent.place = way.address;
    parent.name = name_of_aggregator(way.address);
    job.parent = &parent;
    watch(parent);
  } catch (const Error& error) {
    fail(job, error.kind(), kNobody, error.what());
  }
}

void Aggregator::introduce(Peer& parent) {
  const Job& job = *parent.job;
  const AggregationWay way(job.above);
  AggregationHello hello;
  hello.token = job.token;
  hello.rank = job.least.front();
  hello.ranks = job.ranks;
  hello.members = job.under;
  hello.under = way.under;
  hello.timeout_ms = job.timeout_ms;
  hello.port = datagrams_.port();
  hello.above_length = static_cast<std::uint32_t>(way.above.size());
  hello.window = static_cast<std::uint32_t>(job.window);
  hello.slot_bytes = static_cast<std::uint32_t>(job.slot_bytes);
  hello.proof = proof_of(options_.secret, parent.nonce, hello, way.above);
  const auto* const bytes = reinterpret_cast<const std::byte*>(&hello);
  const auto* const text = reinterpret_cast<const std::byte*>(way.above.data());
  parent.out.insert(parent.out.end(), bytes, bytes + sizeof(hello));
  parent.out.insert(parent.out.end(), text, text + way.above.size());
  write_to(parent);
}

void Aggregator::welcome(Job& job, std::size_t window, std::size_t slot_bytes) {
  job.window = window;
  job.slot_bytes = slot_bytes;
  job.capacity = slot_capacity(slot_bytes);
  if (!options_.shared) job.slots = Slots(window, job.children.size(), job.capacity, options_.on_arrival);
  const AggregationWelcome body{static_cast<std::uint32_t>(window), static_cast<std::uint32_t>(slot_bytes)};
  for (Peer* const child : job.children) post(*child, Kind::welcome, &body, sizeof(body));
}

void Aggregator::take_frame(Peer& peer, const AggregationFrame& frame, const std::byte* body) {
  Job& job = *peer.job;
  if (frame.kind == Kind::welcome && peer.above && frame.length == sizeof(AggregationWelcome)) {
    AggregationWelcome found;
    std::memcpy(&found, body, sizeof(found));
    if (found.window >= 1 && found.window <= job.window && found.slot_bytes >= 64 &&
        found.slot_bytes <= job.slot_bytes && job.capacity == 0) {
      return welcome(job, found.window, found.slot_bytes);
    }
  } else if (frame.kind == Kind::late && !peer.above && frame.length == sizeof(std::uint64_t)) {
    std::uint64_t sequence = 0;
    std::memcpy(&sequence, body, sizeof(sequence));
    return late(job, sequence);
  } else if (frame.kind == Kind::leave && !peer.above) {
    return leave(peer);
  } else if (frame.kind == Kind::failure && frame.length >= sizeof(AggregationFailure)) {
    AggregationFailure failure;
    std::memcpy(&failure, body, sizeof(failure));
    const auto kind = static_cast<Error::Kind>(
        std::min<std::uint32_t>(failure.kind, static_cast<std::uint32_t>(Error::Kind::system)));
    const auto* const text = reinterpret_cast<const char*>(body);
    return fail(job, kind, failure.rank, std::string(text + sizeof(failure), frame.length - sizeof(failure)));
  }
  nonsense(peer);
}

void Aggregator::nonsense(Peer& peer) {
  fail(*peer.job, Error::Kind::mismatch, peer.above ? kNobody : peer.rank, peer.name + " sent the aggregator nonsense");
}

// ---- sums -----------------------------------------------------------------------------------------------------------

void Aggregator::take_packet(const AggregationPacket& head, const std::byte* payload) {
  const auto job = std::ranges::find_if(jobs_, [&head](const Job& one) { return one.token[1] == head.token; });
  if (job == jobs_.end() || job->capacity == 0) return;  // packets before the welcome are ignored
  if (head.length > job->capacity || head.count * wire_bytes(static_cast<NumberFormat>(head.format)) > head.length) {
    return;
  }
  using Packet = AggregationPacket::Kind;
  if (head.kind == Packet::part || head.kind == Packet::question) {
    const std::int32_t child = head.from < job->ranks ? job->child_of[head.from] : -1;
    if (child < 0) return;
    if (head.kind == Packet::question) return take_question(*job, static_cast<std::size_t>(child), head);
    take_part(*job, static_cast<std::size_t>(child), head, payload);
  } else if (head.kind >= Packet::sum && head.kind <= Packet::wanted) {
    if (options_.shared) {
      share_sum(*job, head, payload);
    } else {
      take_sum(*job, head, payload);
    }
  }
}

void Aggregator::take_part(Job& job, std::size_t child, const AggregationPacket& head, const std::byte* payload) {
  if (options_.shared) return share_part(job, child, head, payload);
  const auto [arrival, slot] = job.slots.take(child, head, payload);
  switch (arrival) {
    case Slot::Arrival::stale:
      return;
    case Slot::Arrival::early:
      return fail(job, Error::Kind::mismatch, head.from,
                  rank_named(head.from) + " sent the aggregator a packet that is not its turn");
    case Slot::Arrival::differs:
      return disagree(job, head, *slot);
    case Slot::Arrival::again:
      ask_above(job, *slot);
      return answer(job, child, head, slot);
    case Slot::Arrival::part:
    case Slot::Arrival::complete:
      break;
  }
  if (slot->arrived <= 1 && !acceptable(job, head)) return;
  if (arrival != Slot::Arrival::complete) return;
  if (job.parent != nullptr) return hand_up(job, *slot);
  slot->state = Slot::State::known;
  hand_down(job, *slot);
}

/// True if a packet may be processed here; otherwise its job has ended.
bool Aggregator::acceptable(Job& job, const AggregationPacket& head) {
  const auto format = static_cast<NumberFormat>(head.format);
  if (!options_.formats.empty() && std::ranges::find(options_.formats, format) == options_.formats.end()) {
    std::string known;
    for (const NumberFormat one : options_.formats) known += (known.empty() ? "" : ", ") + std::string(name_of(one));
    fail(job, Error::Kind::mismatch, head.from,
         "this aggregator adds " + known + ", not " + std::string(name_of(format)));
    return false;
  }
  if (job.ranks > most_workers(format)) {
    fail(job, Error::Kind::mismatch, head.from,
         std::string(name_of(format)) + " adds at most " + std::to_string(most_workers(format)) + " workers");
    return false;
  }
  const auto gone = std::ranges::find(job.children, nullptr);
  if (gone == job.children.end()) return true;
  const std::uint32_t rank = job.least[static_cast<std::size_t>(gone - job.children.begin())];
  fail(job, Error::Kind::dead, rank, left(rank, head.operation));
  return false;
}

void Aggregator::disagree(Job& job, const AggregationPacket& head, const Slot& slot) {
  const auto other = static_cast<std::size_t>(std::ranges::find(slot.seen, true) - slot.seen.begin());
  const std::uint32_t rank = other < job.least.size() ? job.least[other] : slot.first.from;
  fail(job, Error::Kind::mismatch, kNobody,
       "the ranks disagree about operation " + std::to_string(slot.first.operation) + ": " + rank_named(head.from) +
           " brings " + brought(head) + ", " + rank_named(rank) + " " + brought(slot.first));
}

/// A child lacks the sum of a packet. With shared slots, its part is always requested: it may have to go another way.
void Aggregator::take_question(Job& job, std::size_t child, const AggregationPacket& head) {
  Slot* slot = job.slots.find(head.sequence);
  if (slot != nullptr && !slot->seen[child]) slot = nullptr;
  if (slot != nullptr) ask_above(job, *slot);
  answer(job, child, head, slot);
}

/// The reply from above about a sum that was sent up: the total sum, or that it has not arrived.
void Aggregator::take_sum(Job& job, const AggregationPacket& head, const std::byte* payload) {
  Slot* const slot = job.slots.find(head.sequence);
  if (job.parent == nullptr || slot == nullptr || slot->state != Slot::State::summed) return;
  if (head.kind == AggregationPacket::Kind::wanted) return hand_up(job, *slot);
  if (head.kind != AggregationPacket::Kind::sum || !slot->first.fits(head)) return;
  std::memcpy(slot->sum.data(), payload, head.length);
  slot->state = Slot::State::known;
  slot->marked = slot->marked || head.has(AggregationPacket::kMarked);
  slot->waited_above = head.waited;
  slot->first.flags |= static_cast<std::uint8_t>(head.flags & AggregationPacket::kUnmeasured);
  hand_down(job, *slot);
}

/// Sends a sum to all children.
void Aggregator::hand_down(Job& job, const Slot& slot) {
  down_.clear();
  for (std::size_t child = 0; child < job.children.size(); ++child) {
    if (job.children[child] == nullptr) continue;
    AggregationPacket& head = down_.emplace_back(slot.first, slot.sum.data(), &job.children[child]->place).head;
    head.kind = AggregationPacket::Kind::sum;
    if (slot.marked) head.flags |= AggregationPacket::kMarked;
    head.waited = slot.waited(child, job.parent == nullptr);
  }
  datagrams_.send(down_);
}

/// Replies to a child that asks, has sent its part again, or has passed it on: with the sum, or that it is not known
/// yet, or (if no slot has it) that its part is wanted.
void Aggregator::answer(Job& job, std::size_t child, const AggregationPacket& question, const Slot* slot) {
  if (job.children[child] == nullptr) return;
  Datagrams::Message message{question, nullptr, &job.children[child]->place};
  if (slot != nullptr && slot->state == Slot::State::known) {
    message = {slot->first, slot->sum.data(), message.to};
    message.head.depth = question.depth;
    message.head.path = question.path;
    message.head.kind = AggregationPacket::Kind::sum;
    message.head.flags |= AggregationPacket::kUnmeasured;
  } else {
    message.head.kind = slot != nullptr ? AggregationPacket::Kind::held : AggregationPacket::Kind::wanted;
    message.head.flags = 0;
    message.head.count = message.head.length = 0;
  }
  datagrams_.send({&message, 1});
}

void Aggregator::ask_above(Job& job, Slot& slot) {
  if (slot.state != Slot::State::summed || Clock::now() - slot.sent_up <= kQuiet) return;
  Datagrams::Message message{slot.first, nullptr, &job.parent->place};
  message.head.kind = AggregationPacket::Kind::question;
  message.head.from = job.least.front();
  message.head.count = message.head.length = 0;
  slot.sent_up = Clock::now();
  datagrams_.send({&message, 1});
}

void Aggregator::hand_up(Job& job, Slot& slot) {
  Datagrams::Message message{slot.first, slot.sum.data(), &job.parent->place};
  message.head.kind = AggregationPacket::Kind::part;
  message.head.from = job.least.front();
  if (slot.marked) message.head.flags |= AggregationPacket::kMarked;
  if (slot.sent_up != Clock::time_point{}) message.head.flags |= AggregationPacket::kAgain;
  slot.sent_up = Clock::now();
  datagrams_.send({&message, 1});
}

// ---- ends -----------------------------------------------------------------------------------------------------------

/// A rank's time is over: find who has not sent its part.
void Aggregator::late(Job& job, std::uint64_t sequence) {
  if (job.capacity == 0) return;
  if (options_.shared) {
    if (Slot* const held = shared_.find(job.token[1], sequence)) give_up(*held);
    return post(*job.parent, Kind::late, &sequence, sizeof(sequence));
  }
  const Slot* const slot = job.slots.find(sequence);
  if (slot == nullptr || slot->state == Slot::State::known) return;  // it will report its own timeout
  if (slot->state == Slot::State::summed) return post(*job.parent, Kind::late, &sequence, sizeof(sequence));
  std::string missing;
  std::uint32_t first = kNobody;
  for (std::size_t child = 0; child < job.children.size(); ++child) {
    if (slot->seen[child]) continue;
    const Peer* const peer = job.children[child];
    if (missing.empty()) first = job.least[child];
    missing += (missing.empty() ? "" : ", ") + std::to_string(job.least[child]);
    if (peer != nullptr && peer->members > 1) {
      missing += " (or one of the " + std::to_string(peer->members) + " of " + peer->name + ")";
    }
  }
  fail(job, Error::Kind::timeout, first,
       "rank " + missing + " did not bring its part of " + told(slot->first) + " in time");
}

void Aggregator::leave(Peer& peer) {
  Job& job = *peer.job;
  if (!job.complete) return lost(peer);
  const auto child = static_cast<std::size_t>(job.child_of[peer.rank]);
  const Slot* const owed = options_.shared ? shared_.waiting_for(job.token[1], child) : job.slots.oldest();
  job.children[child] = nullptr;
  peer.job = nullptr;
  peer.closing = true;
  peer.deadline = Clock::now() + kPatience;
  write_to(peer);
  if (owed != nullptr && !owed->seen[child]) {
    return fail(job, Error::Kind::dead, peer.rank, left(peer.rank, owed->first.operation));
  }
  if (std::ranges::any_of(job.children, [](const Peer* member) { return member != nullptr; })) return;
  if (job.parent != nullptr) {
    post(*job.parent, Kind::leave, nullptr, 0);
    job.parent->job = nullptr;
    job.parent->closing = true;
    job.parent->deadline = Clock::now() + kPatience;
    write_to(*job.parent);
  }
  end(job);
}

void Aggregator::lost(Peer& peer) {
  peer.closed = true;
  if (peer.job == nullptr) return;
  Job& job = *peer.job;
  peer.job = nullptr;
  const Slot* const owed = job.slots.oldest();
  const std::string during = owed != nullptr ? " during " + told(owed->first) : "";
  if (peer.above) {
    job.parent = nullptr;
    return fail(job, Error::Kind::dead, kNobody, peer.name + " is gone" + during);
  }
  std::ranges::replace(job.children, &peer, nullptr);
  if (peer.members > 1) return fail(job, Error::Kind::dead, kNobody, peer.name + " is gone" + during);
  fail(job, Error::Kind::dead, peer.rank,
       rank_named(peer.rank) + " is gone: its connection to the aggregator closed" + during);
}

void Aggregator::fail(Job& job, Error::Kind kind, std::uint32_t rank, const std::string& sentence) {
  for (Peer* const peer : job.children) {
    if (peer != nullptr) refuse(*peer, kind, rank, sentence);
  }
  if (job.parent != nullptr) refuse(*job.parent, kind, rank, sentence);
  end(job);
}

void Aggregator::refuse(Peer& peer, Error::Kind kind, std::uint32_t rank, const std::string& sentence) {
  std::vector<std::byte> body(sizeof(AggregationFailure));
  const AggregationFailure failure{static_cast<std::uint32_t>(kind), rank};
  std::memcpy(body.data(), &failure, sizeof(failure));
  for (const char letter : sentence.substr(0, kLongestSentence)) body.push_back(static_cast<std::byte>(letter));
  peer.job = nullptr;
  peer.closing = true;
  peer.deadline = Clock::now() + kPatience;
  post(peer, Kind::failure, body.data(), body.size());
}

void Aggregator::end(Job& job) {
  shared_.forget(job.token[1]);
  jobs_.remove_if([&job](const Job& other) { return &other == &job; });
}

}  // namespace syntony
