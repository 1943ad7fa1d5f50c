#include "solve/simulate/links/wires.hpp"

#include <algorithm>
#include <cmath>

namespace syntony {
namespace {

// Times that are equal in the model differ by rounding; closer ones count as simultaneous.
constexpr double kSameTime = 1e-12;
constexpr double kSameRate = 1e-9;
constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();

}  // namespace

Wires::Wires(std::vector<double> capacity, bool timeline)
    : keeps_timeline_(timeline), last_rate_(timeline ? capacity.size() : 0), shares_(std::move(capacity)) {}

void Wires::send(std::uint32_t tag, const Way& way, double bytes, double latency) {
  if (bytes <= 0 || way.crossings.empty()) {
    leave(tag, latency);
    return;
  }
  const std::uint32_t number = place_on(way);
  Message& message = messages_[number];
  message = {.tag = tag,
             .version = message.version + 1,
             .way = way.number,
             .streams = true,
             .remaining = bytes,
             .since = now_,
             .rate = message.rate,
             .latency = latency};
  if (message.rate > 0) fresh_.push_back({message.end(), number, message.version});
}

/// The place of a message that has just ended there, with its rate, or a new one.
std::uint32_t Wires::place_on(const Way& way) {
  if (way.number >= ended_on_.size()) ended_on_.resize(way.number + 1, kNobody);
  if (const std::uint32_t ended = std::exchange(ended_on_[way.number], kNobody); ended != kNobody) return ended;
  std::uint32_t number = 0;
  if (free_.empty()) {
    number = static_cast<std::uint32_t>(messages_.size());
    messages_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  shares_.add(number, way.crossings);
  return number;
}

void Wires::wake(std::uint32_t tag, double at) { appointments_.push({at, {WireEvent::Kind::woken, tag}}); }

std::span<const WireEvent> Wires::advance() {
  events_.clear();
  collect();
  if (!events_.empty()) return events_;
  share();
  while (!finishes_.empty() && messages_[finishes_.top().message].version != finishes_.top().version) finishes_.pop();
  if (finishes_.empty() && appointments_.empty()) return events_;
  const double finish = finishes_.empty() ? kNever : finishes_.top().time;
  const double appointment = appointments_.empty() ? kNever : appointments_.top().time;
  now_ = std::max(now_, std::min(finish, appointment));
  finish_due();
  collect();
  return events_;
}

/// Collects what happens now.
void Wires::collect() {
  events_.swap(leaving_);
  while (!appointments_.empty() && appointments_.top().time <= now_ * (1 + kSameTime)) {
    events_.push_back(appointments_.top().event);
    appointments_.pop();
  }
  std::ranges::sort(events_, {}, [](const WireEvent& event) { return std::pair{event.kind, event.tag}; });
}

void Wires::leave(std::uint32_t tag, double latency) {
  leaving_.push_back({WireEvent::Kind::left, tag});
  appointments_.push({now_ + latency, {WireEvent::Kind::arrived, tag}});
}

/// Shares the links among the messages that are streaming now, and updates their end times.
void Wires::share() {
  clear_ended();
  const std::span<const std::uint32_t> settled = shares_.settle();
  for (const std::uint32_t number : settled) {
    Message& message = messages_[number];
    const double rate = shares_.rate(number);
    if (rate == message.rate) continue;
    message.remaining = std::max(0.0, message.remaining - message.rate * (now_ - message.since));
    message.since = now_;
    message.rate = rate;
    fresh_.push_back({message.end(), number, ++message.version});
  }
  const std::size_t streaming = messages_.size() - free_.size();
  if (fresh_.size() * 4 > streaming || finishes_.size() > streaming * 4) {
    // If most ends are new, or most of the heap is outdated, building a new heap is cheaper.
    fresh_.clear();
    for (std::uint32_t number = 0; number < messages_.size(); ++number) {
      const Message& message = messages_[number];
      if (message.streams) fresh_.push_back({message.end(), number, message.version});
    }
    finishes_.assign(fresh_);
  } else {
    for (const Finish& finish : fresh_) finishes_.push(finish);
  }
  fresh_.clear();
  if (!keeps_timeline_) return;
  for (const std::uint32_t link : shares_.settled_links()) {
    const double rate = shares_.load(link);
    if (std::abs(rate - last_rate_[link]) <= kSameRate * last_rate_[link]) continue;
    timeline_.push_back({now_, link, rate});
    last_rate_[link] = rate;
  }
}

/// Takes from the links the messages that have ended and whose place nobody has taken.
void Wires::clear_ended() {
  for (const std::uint32_t number : ended_) {
    Message& message = messages_[number];
    if (message.streams) continue;
    if (ended_on_[message.way] == number) ended_on_[message.way] = kNobody;
    message.rate = 0;
    shares_.remove(number);
    free_.push_back(number);
  }
  ended_.clear();
}

/// Ends the messages whose last byte is on the wire by now.
void Wires::finish_due() {
  while (!finishes_.empty() && finishes_.top().time <= now_ * (1 + kSameTime)) {
    const auto [time, number, version] = finishes_.top();
    finishes_.pop();
    Message& message = messages_[number];
    if (message.version != version) continue;
    ++message.version;
    message.streams = false;
    ended_.push_back(number);
    ended_on_[message.way] = number;
    leave(message.tag, message.latency);
  }
}

void Wires::describe(double share, double moment, std::vector<std::int64_t>& state) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> entries;
  const auto append = [&] {
    std::ranges::sort(entries);
    state.push_back(static_cast<std::int64_t>(entries.size()));
    for (const auto& [tag, distance] : entries) state.insert(state.end(), {tag, distance});
    entries.clear();
  };
  for (const Message& message : messages_) {
    if (!message.streams) continue;
    const double remaining = message.remaining - message.rate * (now_ - message.since);
    entries.emplace_back(message.tag, std::llround(remaining / share));
  }
  append();
  for (const Appointment& appointment : appointments_.items()) {
    entries.emplace_back(appointment.event.tag, std::llround((appointment.time - now_) / moment));
  }
  append();
  for (const WireEvent& event : leaving_) entries.emplace_back(event.tag, 0);
  append();
}

void Wires::skip(double seconds) {
  now_ += seconds;
  for (Message& message : messages_) message.since += seconds;
  for (Finish& finish : fresh_) finish.time += seconds;
  finishes_.postpone(seconds);
  appointments_.postpone(seconds);
}

}  // namespace syntony
