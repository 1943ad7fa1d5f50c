#include "solve/simulate/step_timeline.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

namespace syntony {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr std::int64_t nobody = -1;

using Place = std::int64_t;  // step * rows + row

/// Inverted offsets and items: for each row, the rows that wait for it.
struct Followers {
  std::vector<std::size_t> offset;
  std::vector<std::size_t> row;

  Followers(std::span<const std::int64_t> offsets, std::span<const std::int32_t> items, std::size_t rows)
      : offset(rows + 1), row(items.size()) {
    for (const std::int32_t item : items) ++offset[static_cast<std::size_t>(item) + 1];
    for (std::size_t i = 0; i < rows; ++i) offset[i + 1] += offset[i];
    std::vector<std::size_t> next(offset.begin(), offset.end() - 1);
    for (std::size_t i = 0; i < rows; ++i) {
      for (auto k = static_cast<std::size_t>(offsets[i]); k < static_cast<std::size_t>(offsets[i + 1]); ++k) {
        row[next[static_cast<std::size_t>(items[k])]++] = i;
      }
    }
  }
  [[nodiscard]] std::span<const std::size_t> of(std::size_t i) const {
    return {row.data() + offset[i], offset[i + 1] - offset[i]};
  }
};

struct Event {
  double time;
  enum class Kind : std::uint8_t { arrive, end } kind;
  Place what;             // arrives or ends
  std::uint32_t version;  // of an end: outdated unless it is the row's latest
  bool operator>(const Event& other) const {
    return std::tie(time, kind, what) > std::tie(other.time, other.kind, other.what);
  }
};

struct Queue {
  std::span<const std::int32_t> order;
  std::size_t step = 0, launched = 0;  // current position: `launched` rows of this step
  double bytes = 0;                    // in flight
  std::size_t flying = 0;
  bool held_by_window = false;
  Place last_launched = nobody, last_ended = nobody;
  using Key = std::tuple<double, double, std::int32_t>;  // priority, readiness, row
  std::vector<std::vector<Key>> ready;                   // of a free queue: heaps, by step
  std::set<std::pair<std::uint64_t, Place>> waiting;     // for the queue's turn on its links: ticket, row
  Place served = nobody;                                 // is on its links, with
  double left = 0, since = 0, rate = 0;                  // seconds of work at `since`, done at this rate
  bool begun = false;
};

struct Link {
  std::vector<std::size_t> shared_by;  // queues
  Place last = nobody;
};

struct Processor {
  std::size_t queue = 0;   // what it computes
  std::size_t moving = 0;  // rows that the device transfers
};

class Simulation {
 public:
  explicit Simulation(const SimStep& plan)
      : plan_(plan),
        rows_(plan.rows()),
        places_(rows_ * static_cast<std::size_t>(plan.steps)),
        after_(plan.dep_offset, plan.dep, rows_),
        after_lag_(plan.lag_offset, plan.lag, rows_),
        missing_(places_),
        version_(places_),
        ticket_(places_),
        asked_(places_),
        arrived_(places_),
        queue_of_(rows_),
        queues_(plan.queues()) {
    times_.ready.assign(places_, 0);
    for (auto* column : {&times_.launch, &times_.start, &times_.end}) column->assign(places_, never);
    times_.wait.assign(places_, 0);
    times_.blame.assign(places_, nobody);
    std::int32_t links = 0, devices = 0;
    for (const std::int32_t link : plan.out) links = std::max(links, link + 1);
    for (const std::int32_t link : plan.into) links = std::max(links, link + 1);
    for (const std::int32_t device : plan.device) devices = std::max(devices, device + 1);
    links_.resize(static_cast<std::size_t>(links));
    processors_.resize(static_cast<std::size_t>(devices));
    for (std::size_t q = 0; q < queues_.size(); ++q) {
      const auto begin = static_cast<std::size_t>(plan.order_offset[q]);
      queues_[q].order = plan.order.subspan(begin, static_cast<std::size_t>(plan.order_offset[q + 1]) - begin);
      for (const std::int32_t row : queues_[q].order) queue_of_[static_cast<std::size_t>(row)] = q;
      if (plan.free[q] != 0) queues_[q].ready.resize(static_cast<std::size_t>(plan.steps));
      if (plan.computes[q] != 0) processors_[static_cast<std::size_t>(plan.device[q])].queue = q;
    }
  }

  StepTimes run() {
    for (std::size_t place = 0; place < places_; ++place) {
      const std::size_t row = place % rows_;
      missing_[place] = plan_.dep_offset[row + 1] - plan_.dep_offset[row];
      if (place >= rows_) missing_[place] += plan_.lag_offset[row + 1] - plan_.lag_offset[row];
      if (follows_sender(row)) ++missing_[place];
    }
    for (std::size_t place = 0; place < places_; ++place) {
      if (missing_[place] == 0) become_ready(place);
    }
    for (std::size_t q = 0; q < queues_.size(); ++q) poked_.push_back(q);
    settle();
    while (!events_.empty()) {
      now_ = events_.top().time;
      // Everything that happens at one moment is processed before anything is chosen.
      while (!events_.empty() && events_.top().time <= now_) {
        const Event event = events_.top();
        events_.pop();
        take(event);
      }
      settle();
    }
    return std::move(times_);
  }

 private:
  static std::size_t at(std::int64_t place) { return static_cast<std::size_t>(place); }

  /// A free queue takes a message when it is sent; otherwise both ends could choose different ones.
  [[nodiscard]] bool follows_sender(std::size_t row) const {
    return plan_.partner[row] >= 0 && plan_.into[row] >= 0 && plan_.free[queue_of_[row]] != 0;
  }

  void become_ready(std::size_t place) {
    times_.ready[place] = now_;
    const std::size_t row = place % rows_, q = queue_of_[row];
    Queue& queue = queues_[q];
    if (plan_.free[q] != 0) {
      auto& heap = queue.ready[place / rows_];
      heap.emplace_back(plan_.priority[row], now_, static_cast<std::int32_t>(row));
      std::ranges::push_heap(heap, std::greater<>{});
    }
    poked_.push_back(q);
  }

  void take(const Event& event) {
    const std::size_t what = at(event.what);
    switch (event.kind) {
      case Event::Kind::arrive:
        arrive(what);
        break;
      case Event::Kind::end:
        if (event.version == version_[what]) end(what);
        break;
    }
  }

  void settle() {
    while (!poked_.empty()) {
      const std::size_t q = poked_.back();
      poked_.pop_back();
      launch_from(q);
    }
    while (!stale_.empty()) {
      const std::size_t q = stale_.back();
      stale_.pop_back();
      update_rate(q);
    }
  }

  /// The next row of a queue that may go, if any; else nobody.
  Place next_of(std::size_t q) {
    Queue& queue = queues_[q];
    const auto steps = static_cast<std::size_t>(plan_.steps);
    if (queue.step < steps && queue.launched == queue.order.size()) {
      ++queue.step;
      queue.launched = 0;
    }
    if (queue.step == steps || queue.order.empty()) return nobody;
    const bool free = plan_.free[q] != 0;
    if (free && queue.ready[queue.step].empty()) return nobody;
    const std::int32_t row = free ? std::get<2>(queue.ready[queue.step].front()) : queue.order[queue.launched];
    const std::size_t place = queue.step * rows_ + static_cast<std::size_t>(row);
    return missing_[place] == 0 ? static_cast<Place>(place) : nobody;
  }

  void launch_from(std::size_t q) {
    Queue& queue = queues_[q];
    for (Place next = next_of(q); next != nobody; next = next_of(q)) {
      const std::size_t place = at(next), row = place % rows_;
      if (queue.flying > 0 && (plan_.serial[q] != 0 || plan_.free[q] != 0)) return;
      if (queue.flying > 0 && plan_.window[q] > 0 && queue.bytes + plan_.bytes[row] > plan_.window[q]) {
        queue.held_by_window = true;
        return;
      }
      launch(q, place);
    }
  }

  void launch(std::size_t q, std::size_t place) {
    Queue& queue = queues_[q];
    const std::size_t row = place % rows_;
    if (plan_.free[q] != 0) {
      std::ranges::pop_heap(queue.ready[queue.step], std::greater<>{});
      queue.ready[queue.step].pop_back();
    }
    times_.launch[place] = now_;
    ticket_[place] = ++tickets_;
    if (now_ > times_.ready[place]) {
      const bool busy = plan_.serial[q] != 0 || plan_.free[q] != 0 || queue.held_by_window;
      blame(place, queue.held_by_window ? Wait::window : Wait::lane, busy ? queue.last_ended : queue.last_launched);
    }
    queue.held_by_window = false;
    queue.last_launched = static_cast<Place>(place);
    queue.bytes += plan_.bytes[row];
    ++queue.flying;
    ++queue.launched;
    if (plan_.partner[row] >= 0 && plan_.out[row] >= 0) {
      const std::size_t other = partner(place);
      if (follows_sender(other % rows_) && --missing_[other] == 0) become_ready(other);
    }
    const double wait = plan_.latency[row];
    if (wait > 0) {
      events_.push({now_ + wait, Event::Kind::arrive, static_cast<std::int64_t>(place), 0});
    } else {
      arrive(place);
    }
  }

  [[nodiscard]] std::size_t partner(std::size_t place) const {
    return place - place % rows_ + static_cast<std::size_t>(plan_.partner[place % rows_]);
  }

  void blame(std::size_t place, Wait wait, Place whom) {
    times_.wait[place] = static_cast<std::uint8_t>(wait);
    times_.blame[place] = whom;
  }

  /// The row, or its message once both ends are here, requests its links, ordered by its (the sender's) launch.
  void arrive(std::size_t place) {
    arrived_[place] = true;
    std::size_t asks = place;
    if (plan_.partner[place % rows_] >= 0) {
      const std::size_t other = partner(place);
      if (!arrived_[other]) return;
      asks = plan_.out[place % rows_] >= 0 ? place : other;  // the sender requests for both
      blame(other, Wait::partner, static_cast<Place>(place));
    }
    asked_[asks] = now_;
    const auto [out, into] = links_of(asks);
    if (out < 0 && into < 0) {
      begin(asks);
      events_.push({now_ + plan_.seconds[asks % rows_], Event::Kind::end, static_cast<std::int64_t>(asks), 0});
      return;
    }
    const std::size_t q = queue_of_[asks % rows_];
    queues_[q].waiting.emplace(ticket_[asks], static_cast<Place>(asks));
    serve(q);
  }

  [[nodiscard]] std::pair<std::int32_t, std::int32_t> links_of(std::size_t place) const {
    const std::size_t row = place % rows_;
    if (plan_.partner[row] < 0) return {plan_.out[row], plan_.into[row]};
    return {plan_.out[row], plan_.into[static_cast<std::size_t>(plan_.partner[row])]};
  }

  /// Puts the first row in line on the queue's links, if they have none of this queue.
  void serve(std::size_t q) {
    Queue& queue = queues_[q];
    if (queue.served != nobody || queue.waiting.empty()) return;
    queue.served = queue.waiting.begin()->second;
    queue.waiting.erase(queue.waiting.begin());
    queue.left = plan_.seconds[at(queue.served) % rows_];
    queue.since = now_;
    queue.rate = 0;
    queue.begun = false;
    const auto [out, into] = links_of(at(queue.served));
    for (const std::int32_t link : {out, into}) {
      if (link < 0) continue;
      Link& one = links_[static_cast<std::size_t>(link)];
      one.shared_by.push_back(q);
      stale_.insert(stale_.end(), one.shared_by.begin(), one.shared_by.end());
    }
  }

  /// What a queue gets of a link: nothing beside a more urgent one, else the same as each that is as urgent.
  [[nodiscard]] double share(std::size_t q, const Link& link) const {
    std::size_t equal = 0;
    for (const std::size_t other : link.shared_by) {
      if (plan_.rank[other] < plan_.rank[q]) return 0;
      if (plan_.rank[other] == plan_.rank[q]) ++equal;
    }
    return 1 / static_cast<double>(equal);
  }

  void update_rate(std::size_t q) {
    Queue& queue = queues_[q];
    if (queue.served == nobody) return;
    const std::size_t place = at(queue.served);
    const auto [out, into] = links_of(place);
    double rate = 1;
    for (const std::int32_t link : {out, into}) {
      if (link >= 0) rate = std::min(rate, share(q, links_[static_cast<std::size_t>(link)]));
    }
    const Processor& processor = processors_[static_cast<std::size_t>(plan_.device[q])];
    if (plan_.computes[q] != 0 && processor.moving > 0) rate /= 1 + plan_.contention;
    if (rate == queue.rate) return;
    queue.left = std::max(0.0, queue.left - (now_ - queue.since) * queue.rate);
    queue.since = now_;
    queue.rate = rate;
    ++version_[place];
    if (rate == 0) return;
    if (!queue.begun) {
      queue.begun = true;
      if (const Place whom = on_links_before(q, out, into); whom != nobody) {
        blame(place, Wait::link, whom);
        if (plan_.partner[place % rows_] >= 0) blame(partner(place), Wait::link, whom);
      }
      begin(place);
    }
    events_.push({now_ + queue.left / rate, Event::Kind::end, queue.served, version_[place]});
  }

  /// Whom the queue's row, which begins now, waited for, or shares its links with; or nobody.
  [[nodiscard]] Place on_links_before(std::size_t q, std::int32_t out, std::int32_t into) const {
    Place whom = nobody;
    const bool waited = now_ > asked_[at(queues_[q].served)];
    for (const std::int32_t number : {out, into}) {
      if (number < 0) continue;
      const Link& link = links_[static_cast<std::size_t>(number)];
      if (waited) {
        if (whom == nobody || (link.last != nobody && times_.end[at(link.last)] > times_.end[at(whom)]))
          whom = link.last;
      } else if (share(q, link) < 1 && link.shared_by.front() != q) {
        whom = queues_[link.shared_by.front()].served;
      }
    }
    return whom;
  }

  void begin(std::size_t place) {
    times_.start[place] = now_;
    moves(place, 1);
    if (plan_.partner[place % rows_] >= 0) {
      const std::size_t other = partner(place);
      times_.start[other] = now_;
      moves(other, 1);
    }
  }

  /// The place's device transfers one row more or less, so what it computes slows down or speeds up.
  void moves(std::size_t place, int change) {
    const std::size_t q = queue_of_[place % rows_];
    if (plan_.contention <= 0 || plan_.computes[q] != 0) return;
    Processor& processor = processors_[static_cast<std::size_t>(plan_.device[q])];
    processor.moving += static_cast<std::size_t>(change);
    if (plan_.computes[processor.queue] != 0) stale_.push_back(processor.queue);
  }

  void end(std::size_t place) {
    const std::size_t q = queue_of_[place % rows_];
    const auto [out, into] = links_of(place);
    for (const std::int32_t link : {out, into}) {
      if (link < 0) continue;
      Link& one = links_[static_cast<std::size_t>(link)];
      std::erase(one.shared_by, q);
      one.last = static_cast<Place>(place);
      stale_.insert(stale_.end(), one.shared_by.begin(), one.shared_by.end());
    }
    finish(place);
    if (plan_.partner[place % rows_] >= 0) finish(partner(place));
    if (queues_[q].served != static_cast<Place>(place)) return;  // it needed no link
    queues_[q].served = nobody;
    serve(q);
  }

  void finish(std::size_t place) {
    const std::size_t row = place % rows_, q = queue_of_[row], step = place / rows_;
    Queue& queue = queues_[q];
    times_.end[place] = now_;
    queue.bytes -= plan_.bytes[row];
    --queue.flying;
    queue.last_ended = static_cast<Place>(place);
    moves(place, -1);
    poked_.push_back(q);
    for (const std::size_t next : after_.of(row)) done_for(step * rows_ + next, place);
    if (step + 1 < static_cast<std::size_t>(plan_.steps)) {
      for (const std::size_t next : after_lag_.of(row)) done_for((step + 1) * rows_ + next, place);
    }
  }

  void done_for(std::size_t place, std::size_t by) {
    if (--missing_[place] > 0) return;
    blame(place, Wait::dependency, static_cast<Place>(by));
    become_ready(place);
  }

  const SimStep& plan_;
  std::size_t rows_, places_;
  Followers after_, after_lag_;
  std::vector<std::int64_t> missing_;
  std::vector<std::uint32_t> version_;
  std::vector<std::uint64_t> ticket_;  // its position among all launches
  std::vector<double> asked_;
  std::vector<bool> arrived_;
  std::vector<std::size_t> queue_of_;
  std::vector<Queue> queues_;
  std::vector<Link> links_;
  std::vector<Processor> processors_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::size_t> poked_;  // queues that may launch a row
  std::vector<std::size_t> stale_;  // queues whose share of a link may have changed
  std::uint64_t tickets_ = 0;
  double now_ = 0;
  StepTimes times_;
};

void require(bool good, const char* column) {
  if (!good) throw std::invalid_argument(std::string("column ") + column + " does not fit the others");
}

void check(const SimStep& plan) {
  const std::size_t rows = plan.rows(), queues = plan.queues();
  const auto numbers = [](std::span<const std::int32_t> column, std::int64_t least, std::size_t limit) {
    return std::ranges::all_of(
        column, [&](std::int32_t number) { return number >= least && number < static_cast<std::int64_t>(limit); });
  };
  const auto offsets = [](std::span<const std::int64_t> column, std::size_t count, std::size_t end) {
    return column.size() == count + 1 && column.front() == 0 && column.back() == static_cast<std::int64_t>(end) &&
           std::ranges::is_sorted(column);
  };
  const auto times = [](std::span<const double> column, std::size_t count) {
    return column.size() == count &&
           std::ranges::all_of(column, [](double value) { return value >= 0 && value < never; });
  };
  require(plan.steps > 0 && rows * static_cast<std::size_t>(plan.steps) < (std::size_t{1} << 40U), "steps");
  require(plan.contention >= 0 && plan.contention < never, "contention");
  require(offsets(plan.order_offset, queues, plan.order.size()), "order_offset");
  require(plan.order.size() == rows && numbers(plan.order, 0, rows), "order");
  std::vector<bool> seen(rows);
  for (const std::int32_t row : plan.order) seen[static_cast<std::size_t>(row)] = true;
  require(std::ranges::all_of(seen, [](bool one) { return one; }), "order");
  require(plan.serial.size() == queues, "serial");
  require(plan.computes.size() == queues, "computes");
  require(times(plan.window, queues), "window");
  require(plan.rank.size() == queues, "rank");
  require(plan.device.size() == queues && numbers(plan.device, 0, queues), "device");
  require(plan.priority.size() == rows, "priority");
  require(times(plan.seconds, rows), "seconds");
  require(times(plan.latency, rows), "latency");
  require(times(plan.bytes, rows), "bytes");
  require(offsets(plan.dep_offset, rows, plan.dep.size()), "dep_offset");
  require(offsets(plan.lag_offset, rows, plan.lag.size()), "lag_offset");
  require(numbers(plan.dep, 0, rows), "dep");
  require(numbers(plan.lag, 0, rows), "lag");
  require(plan.out.size() == rows && numbers(plan.out, -1, 2 * rows), "out");
  require(plan.into.size() == rows && numbers(plan.into, -1, 2 * rows), "into");
  require(plan.partner.size() == rows && numbers(plan.partner, -1, rows), "partner");
  for (std::size_t row = 0; row < rows; ++row) {
    if (plan.partner[row] < 0) continue;
    const auto other = static_cast<std::size_t>(plan.partner[row]);
    require(plan.partner[other] == static_cast<std::int32_t>(row), "partner");
    require((plan.out[row] >= 0) != (plan.into[row] >= 0) && (plan.out[row] >= 0) == (plan.into[other] >= 0),
            "partner");
  }
}

}  // namespace

StepTimes simulate(const SimStep& plan) {
  check(plan);
  return Simulation(plan).run();
}

}  // namespace syntony
