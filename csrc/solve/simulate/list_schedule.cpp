#include "solve/simulate/list_schedule.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <ranges>
#include <utility>

#include "solve/column_checks.hpp"

namespace syntony {
namespace {

using Number = std::uint32_t;

class ListScheduler {
 public:
  explicit ListScheduler(const Tasks& tasks)
      : tasks_(tasks),
        waiting_(tasks.seconds.size()),
        next_offset_(tasks.seconds.size() + 1),
        links_(tasks.link.begin(), tasks.link.end()),
        ready_on_(tasks.offset.size() - 1),
        looks_at_(tasks.offset.size() - 1),
        first_on_(tasks.links) {
    for (const std::int64_t waiter : tasks.waiter) ++waiting_[static_cast<std::size_t>(waiter)];
    for (const std::int64_t awaited : tasks.awaited) ++next_offset_[static_cast<std::size_t>(awaited) + 1];
    for (std::size_t task = 0; task < waiting_.size(); ++task) next_offset_[task + 1] += next_offset_[task];
    next_.resize(tasks.waiter.size());
    std::vector<std::size_t> place(next_offset_.begin(), next_offset_.end() - 1);
    for (std::size_t row = 0; row < tasks.waiter.size(); ++row) {
      next_[place[static_cast<std::size_t>(tasks.awaited[row])]++] = static_cast<Number>(tasks.waiter[row]);
    }
    for (Number route = 0; route < looks_at_.size(); ++route) {
      if (!links_of(route).empty()) looks_at_[route] = links_of(route).front();
    }
    busy_.assign(tasks.links, 0);
  }

  ListSchedule run() {
    find_ways();
    found_.start.assign(waiting_.size(), std::numeric_limits<double>::infinity());
    for (Number task = 0; task < waiting_.size(); ++task) {
      if (waiting_[task] == 0) ready(task, 0.0);
    }
    double now = 0;
    while (true) {
      std::ranges::sort(fresh_);
      fresh_.erase(std::ranges::unique(fresh_).begin(), fresh_.end());
      for (const Number link : fresh_) look(link, now);
      fresh_.clear();
      if (events_.empty()) return std::move(found_);
      now = events_.top().when;
      while (!events_.empty() && events_.top().when == now) {  // all of one moment, before anything starts
        const auto [when, arrived, task] = events_.top();
        events_.pop();
        if (arrived) {
          for (const Number later : next_of(task)) {
            if (--waiting_[later] == 0) ready(later, now);
          }
        } else {
          for (const Number link : links_of(route_of(task))) busy_[link] = 0, fresh_.push_back(link);
          events_.push({now + tasks_.latency[task], true, task});
        }
      }
    }
  }

 private:
  struct Event {  // a task leaves its links, or arrives
    double when;
    bool arrived;
    Number task;
    friend bool operator>(const Event& a, const Event& b) {
      if (a.when != b.when) return a.when > b.when;
      return a.arrived != b.arrived ? a.arrived > b.arrived : a.task > b.task;
    }
  };
  using Urgent = std::pair<double, Number>;  // minus its urgency, task
  template <class T>
  using Least = std::priority_queue<T, std::vector<T>, std::greater<>>;

  [[nodiscard]] Number route_of(Number task) const { return static_cast<Number>(tasks_.route[task]); }

  [[nodiscard]] std::span<const Number> links_of(Number route) const {
    const auto first = static_cast<std::size_t>(tasks_.offset[route]);
    return std::span(links_).subspan(first, static_cast<std::size_t>(tasks_.offset[route + 1]) - first);
  }

  [[nodiscard]] std::span<const Number> next_of(Number task) const {
    return std::span(next_).subspan(next_offset_[task], next_offset_[task + 1] - next_offset_[task]);
  }

  /// Computes every task's depth and the length of its remaining path.
  void find_ways() {
    std::vector<Number> left(waiting_), order;
    for (Number task = 0; task < left.size(); ++task) {
      if (left[task] == 0) order.push_back(task);
    }
    found_.depth.assign(left.size(), 0);
    for (std::size_t place = 0; place < order.size(); ++place) {
      const Number task = order[place];
      for (const Number later : next_of(task)) {
        found_.depth[later] = std::max(found_.depth[later], found_.depth[task] + 1);
        if (--left[later] == 0) order.push_back(later);
      }
    }
    urgency_.assign(left.size(), 0.0);
    for (const Number task : std::views::reverse(order)) {
      double after = 0;
      for (const Number later : next_of(task)) after = std::max(after, urgency_[later]);
      urgency_[task] = tasks_.seconds[task] + tasks_.latency[task] + after;
    }
    for (std::size_t task = 0; task < left.size(); ++task) urgency_[task] -= tasks_.lag[task];
  }

  void ready(Number task, double now) {
    const Number route = route_of(task);
    if (links_of(route).empty()) {
      found_.start[task] = now;
      events_.push({now + tasks_.latency[task], true, task});
      return;
    }
    const Urgent urgent{-urgency_[task], task};
    ready_on_[route].push(urgent);
    if (ready_on_[route].top() != urgent) return;
    first_on_[looks_at_[route]].push(urgent);
    fresh_.push_back(looks_at_[route]);
  }

  /// Starts the most urgent task on the link. A route that has another, busy link waits for that one.
  void look(Number link, double now) {
    while (busy_[link] == 0 && !first_on_[link].empty()) {
      const Urgent first = first_on_[link].top();
      first_on_[link].pop();
      const Number route = route_of(first.second);
      Least<Urgent>& others = ready_on_[route];
      if (looks_at_[route] != link || others.empty() || others.top() != first) continue;  // no longer the first
      const auto links = links_of(route);
      const auto blocked = std::ranges::find_if(links, [this](Number other) { return busy_[other] != 0; });
      if (blocked != links.end()) {
        looks_at_[route] = *blocked;
        first_on_[*blocked].push(first);
        continue;
      }
      for (const Number taken : links) busy_[taken] = 1;
      found_.start[first.second] = now;
      events_.push({now + tasks_.seconds[first.second], false, first.second});
      others.pop();
      if (!others.empty()) first_on_[link].push(others.top());
    }
  }

  const Tasks& tasks_;
  std::vector<Number> waiting_;  ///< by task: number of others it waits for
  std::vector<std::size_t> next_offset_;
  std::vector<Number> next_;  ///< those that wait for each
  std::vector<Number> links_;
  std::vector<Least<Urgent>> ready_on_;  ///< by route, its tasks that wait for links only
  std::vector<Number> looks_at_;         ///< by route, the link that they wait for
  std::vector<Least<Urgent>> first_on_;  ///< by link, the first of each route that waits for it, now or before
  std::vector<std::uint8_t> busy_;
  std::vector<double> urgency_;
  std::vector<Number> fresh_;  ///< links to look at
  Least<Event> events_;
  ListSchedule found_;
};

}  // namespace

ListSchedule list_schedule(const Tasks& tasks) {
  const std::size_t count = tasks.seconds.size();
  check_size("latency", tasks.latency, count);
  check_size("lag", tasks.lag, count);
  check_size("route", tasks.route, count);
  check_size("awaited", tasks.awaited, tasks.waiter.size());
  check_amounts("seconds", tasks.seconds, false);
  check_amounts("latency", tasks.latency, false);
  check_numbers("link", tasks.link, tasks.links);
  check_offset("offset", tasks.offset, tasks.link.size(), 0);
  check_numbers("route", tasks.route, tasks.offset.size() - 1);
  for (const auto& [name, column] : {std::pair{"waiter", tasks.waiter}, std::pair{"awaited", tasks.awaited}}) {
    for (std::size_t row = 0; row < column.size(); ++row) {
      if (column[row] < 0 || static_cast<std::size_t>(column[row]) >= count) refuse(name, row, "is not a task");
    }
  }
  return ListScheduler(tasks).run();
}

}  // namespace syntony
