// Wires: messages on links, by the alpha-beta model with fairly shared links. The clock of every simulator here.
//
//     link 0  [===== message 0 =====][== message 2 ==]            a message streams through all links of its way at
//     link 1       [= message 1 =]                                once, at a max-min fair rate (fair_share.hpp), and
//                                 ·· latency ··▶ 0 arrived        arrives `latency` after its last byte has left
//
// A simulator starts messages with `send` and learns their progress from `advance`. Everything that happens at one
// moment is one batch: links are shared anew once per moment, however many messages begin or end then. A message that
// begins when another one of the same way ends takes its place and its rate; if there are no others, nothing is shared
// anew. So do the slices of a lane, most of the time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "solve/simulate/links/fair_share.hpp"

namespace syntony {

struct WireEvent {
  enum class Kind : std::uint8_t {
    left,     // the message's last byte is on the wire
    arrived,  // it has arrived
    woken,    // a time requested by `wake` has come
  };
  Kind kind;
  std::uint32_t tag;
};

/// From `time` on, `link` carries `rate` bytes/s.
struct LinkRate {
  double time;
  std::uint32_t link;
  double rate;
};

/// The links that a message takes; ways with equal numbers have equal crossings. Numbers are small.
struct Way {
  std::uint32_t number = 0;
  std::span<const Crossing> crossings;
};

class Wires {
 public:
  /// `capacity`: bytes/s of every link; `timeline`: whether to record the rates of links.
  Wires(std::vector<double> capacity, bool timeline);

  /// Seconds since the start.
  [[nodiscard]] double now() const { return now_; }

  /// Starts a message now. Tags are chosen by the caller. A message without bytes or crossings leaves immediately.
  void send(std::uint32_t tag, const Way& way, double bytes, double latency);
  void wake(std::uint32_t tag, double at);

  /// What happens next, all of it at time `now()`, by kind and tag; empty if nothing is in flight. Messages sent in
  /// response that leave immediately are reported by the next call, at the same time. Valid until the next call.
  std::span<const WireEvent> advance();

  [[nodiscard]] std::span<const LinkRate> timeline() const { return timeline_; }

  /// Appends everything that the future of the messages depends on, except the time: equal numbers, equal futures.
  /// Rounded to `share` bytes and `moment` seconds.
  void describe(double share, double moment, std::vector<std::int64_t>& state) const;
  /// Advances the clock; what is in flight stays as far from its end as it was.
  void skip(double seconds);

 private:
  struct Message {
    std::uint32_t tag = 0;
    std::uint32_t version = 0;  // of its finish
    std::uint32_t way = 0;
    bool streams = false;
    double remaining = 0;  // bytes, at the time `since`
    double since = 0;
    double rate = 0;
    [[nodiscard]] double end() const { return since + remaining / rate; }
    double latency = 0;
  };
  struct Finish {  // of a message; void if its version has changed since
    double time;
    std::uint32_t message;
    std::uint32_t version;
    friend bool operator>(const Finish& a, const Finish& b) {
      return a.time != b.time ? a.time > b.time : a.message > b.message;
    }
  };
  struct Appointment {
    double time;
    WireEvent event;
    friend bool operator>(const Appointment& a, const Appointment& b) { return a.time > b.time; }
  };
  template <class Item>
  struct Soonest : std::priority_queue<Item, std::vector<Item>, std::greater<>> {
    [[nodiscard]] const std::vector<Item>& items() const { return this->c; }
    void assign(std::vector<Item>& items) {
      this->c.swap(items);
      std::ranges::make_heap(this->c, std::greater<>{});
    }
    void postpone(double seconds) {  // all equally, so their order stays
      for (Item& item : this->c) item.time += seconds;
    }
  };

  [[nodiscard]] std::uint32_t place_on(const Way& way);
  void leave(std::uint32_t tag, double latency);
  void collect();
  void clear_ended();
  void share();
  void finish_due();

  bool keeps_timeline_;
  std::vector<LinkRate> timeline_;
  std::vector<double> last_rate_;  // per link, if a timeline is recorded

  FairShare shares_;
  double now_ = 0;
  std::vector<Message> messages_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> ended_;     // messages that have ended since links were shared
  std::vector<std::uint32_t> ended_on_;  // by way, the last of them whose place nobody has taken, or kNobody
  std::vector<Finish> fresh_;
  Soonest<Finish> finishes_;
  Soonest<Appointment> appointments_;
  std::vector<WireEvent> leaving_;
  std::vector<WireEvent> events_;
};

}  // namespace syntony
