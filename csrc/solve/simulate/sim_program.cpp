#include "solve/simulate/sim_program.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "solve/column_checks.hpp"
#include "solve/simulate/links/path_chooser.hpp"
#include "solve/simulate/steady_state.hpp"

namespace syntony {
namespace {

// States are distinguished to this fraction of a full message, in bytes and in seconds.
constexpr double kStatePrecision = 1e-6;
constexpr std::int64_t kFinished = std::numeric_limits<std::int64_t>::min();

std::size_t index(std::int64_t number) { return static_cast<std::size_t>(number); }

/// The slices from which on some message is shorter than before, or empty.
std::vector<std::int64_t> boundaries_of(const SimProgram& program) {
  std::vector<std::int64_t> found;
  for (std::size_t chunk = 0; chunk < program.chunk_bytes.size(); ++chunk) {
    const double slices = program.chunk_bytes[chunk] / program.slice_bytes[chunk];
    found.push_back(static_cast<std::int64_t>(std::floor(slices)));
    found.push_back(static_cast<std::int64_t>(std::ceil(slices)));
  }
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

/// One simulation: the state between two events.
class ProgramRun {
 public:
  ProgramRun(const SimProgram& program, bool every_slice)
      : program_(program),
        wires_({program.capacity.begin(), program.capacity.end()}, every_slice),
        chooser_(program.paths, program.capacity, program.policy == PathPolicy::least_loaded),
        every_slice_(every_slice),
        lanes_(program.lanes()),
        lane_of_(program.rows()),
        fifos_(program.connections()),
        queues_(program.route.size()),
        steady_(boundaries_of(program)) {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      const std::int64_t first = program.lane_offset[lane], end = program.lane_offset[lane + 1];
      lanes_[lane].first = first;
      lanes_[lane].length = end - first;
      lanes_[lane].slices = program.lane_slices[lane];
      lanes_[lane].iteration = end > first && lanes_[lane].slices > 0 ? skew_of(first) : Lane::finished;
      for (std::int64_t row = first; row < end; ++row) lane_of_[index(row)] = static_cast<std::uint32_t>(lane);
      if (program.begin[lane] > 0) {
        lanes_[lane].asleep = true;
        wires_.wake(static_cast<std::uint32_t>(lane), program.begin[lane]);
      } else {
        wake(static_cast<std::uint32_t>(lane));
      }
    }
    const double fastest = program.capacity.empty() ? 1 : *std::ranges::max_element(program.capacity);
    share_ = kStatePrecision * (program.slice_bytes.empty() ? 1 : *std::ranges::max_element(program.slice_bytes));
    moment_ = share_ / fastest;
  }

  SimTimes run() && {
    run_lanes();
    std::size_t leader = 0;   // the first lane that is not done,
    std::int64_t looked = 0;  // and the slice in which it last looked for a steady state, plus one
    for (auto events = wires_.advance(); !events.empty(); events = wires_.advance()) {
      for (const WireEvent& event : events) note(event);
      run_lanes();
      if (every_slice_ || program_.policy == PathPolicy::least_loaded) continue;
      while (leader + 1 < lanes_.size() && lanes_[leader].done()) ++leader, looked = 0;
      if (lanes_[leader].iteration >= looked && !lanes_[leader].done()) {
        skip(leader);
        looked = lanes_[leader].iteration + 1;
      }
    }
    times_.seconds = wires_.now();
    times_.timeline.assign(wires_.timeline().begin(), wires_.timeline().end());
    const auto stuck = std::ranges::find_if_not(lanes_, &Lane::done);
    if (stuck != lanes_.end()) times_.stuck_row = stuck->first + stuck->position, times_.stuck_slice = slice_of(*stuck);
    return std::move(times_);
  }

 private:
  struct Waiter {
    std::int64_t iteration, position;  // waits until this row of the lane is done in this iteration
    std::uint32_t lane;
  };
  struct Lane {
    std::int64_t first = 0, length = 0, slices = 0;
    std::int64_t iteration = 0, position = 0;  // current position
    std::int64_t earliest = 0;                 // first position that has a slice in this iteration
    std::uint32_t sending = 0;                 // parts of its message that it still waits for
    bool asleep = false;                       // not started, or waiting for another lane
    std::vector<Waiter> waiters;
    static constexpr std::int64_t finished = std::numeric_limits<std::int64_t>::max();
    [[nodiscard]] bool done() const { return iteration == finished; }
    [[nodiscard]] bool has_done(std::int64_t in_iteration, std::int64_t at) const {
      return iteration > in_iteration || (iteration == in_iteration && position > at);
    }
  };
  struct Fifo {
    std::int64_t taken = 0;             // messages taken from it so far
    std::vector<std::uint32_t> awaits;  // messages in it: number of parts of each that have not arrived
    [[nodiscard]] std::int64_t held() const { return static_cast<std::int64_t>(awaits.size()); }
    [[nodiscard]] bool ready() const { return !awaits.empty() && awaits.front() == 0; }
  };
  struct Cause {  // what allowed something to happen: a message that arrived or left
    std::int64_t message = -1;
    bool left = false;
  };
  struct Runnable {
    std::uint32_t lane;
    Cause cause;
  };
  struct Posted {  // a message, or part of one, in flight
    std::uint32_t connection;
    std::int64_t number;  // number within the connection
    double bytes;
    std::size_t entry;  // of times_
  };
  struct Queue {  // of a flow
    std::vector<Posted> messages;
    std::size_t left = 0;    // how many messages have left the wire but not arrived; the next one is on it,
    std::int32_t path = -1;  // on this path
  };

  void note(const WireEvent& event) {
    if (event.kind == WireEvent::Kind::woken) {
      lanes_[event.tag].asleep = false;
      cause_ = {};
      wake(event.tag);
      return;
    }
    Queue& queue = queues_[event.tag];
    const bool arrived = event.kind == WireEvent::Kind::arrived;
    const Posted message = queue.messages[arrived ? 0 : queue.left];
    if (every_slice_) (arrived ? times_.arrival : times_.left)[message.entry] = wires_.now();
    cause_ = {static_cast<std::int64_t>(message.entry), !arrived};
    const auto kind = static_cast<ConnectionKind>(program_.kind[message.connection]);
    if (arrived) {
      queue.messages.erase(queue.messages.begin());
      --queue.left;
      if (kind == ConnectionKind::fifo) {
        Fifo& fifo = fifos_[message.connection];
        const std::uint32_t awaited = --fifo.awaits[index(message.number - fifo.taken)];
        if (awaited == 0) wake(static_cast<std::uint32_t>(program_.drainer[message.connection]));
      }
    } else {
      chooser_.leave(program_.route[event.tag], queue.path, message.bytes);
      if (++queue.left < queue.messages.size()) stream(event.tag);
    }
    const bool awaited = kind != ConnectionKind::fifo || !program_.buffered;
    if (awaited && arrived == (kind == ConnectionKind::read)) {
      sent(static_cast<std::uint32_t>(program_.feeder[message.connection]));
    }
  }

  /// Wakes the lane because of `cause_`.
  void wake(std::uint32_t lane) { runnable_.push_back({lane, cause_}); }

  void run_lanes() {
    for (std::size_t next = 0; next < runnable_.size(); ++next) {  // NOLINT: it grows
      const Runnable found = runnable_[next];
      cause_ = found.cause;
      advance(found.lane);
    }
    runnable_.clear();
  }

  /// Performs what the lane can perform now.
  void advance(std::uint32_t number) {
    Lane& lane = lanes_[number];
    while (lane.sending == 0 && !lane.asleep && !lane.done()) {
      const std::int64_t row = lane.first + lane.position;
      if (waits(number, row)) return;
      const std::int32_t out = program_.out[index(row)], into = program_.into[index(row)];
      const std::int64_t slice = slice_of(lane);
      const double size = out >= 0 || into >= 0 ? bytes(row, slice) : 0;
      if (size <= 0 && program_.signals[index(row)] == 0) {
        step(number);
        continue;
      }
      if (into >= 0 && !fifos_[index(into)].ready()) return;
      if (out < 0) {
        take(into);
        step(number);
        continue;
      }
      const auto connection = static_cast<std::uint32_t>(out);
      const bool fifo = static_cast<ConnectionKind>(program_.kind[connection]) == ConnectionKind::fifo;
      if (fifo && fifos_[connection].held() >= program_.fifo_depth) return;
      const std::uint32_t parts = post(connection, row, slice, size, fifo);
      if (fifo && program_.buffered) {
        if (into >= 0) take(into);
        step(number);
      } else {
        lane.sending = parts;
      }
    }
  }

  /// True if the row must wait for another one, which will then wake the lane.
  bool waits(std::uint32_t number, std::int64_t row) {
    Lane& lane = lanes_[number];
    for (std::int64_t at = program_.need_offset[index(row)]; at < program_.need_offset[index(row) + 1]; ++at) {
      const std::int64_t needed = program_.need[index(at)];
      Lane& other = lanes_[lane_of_[index(needed)]];
      const std::int64_t position = needed - other.first, iteration = slice_of(lane) + skew_of(needed);
      if (other.has_done(iteration, position)) continue;
      other.waiters.push_back({iteration, position, number});
      lane.asleep = true;
      return true;
    }
    return false;
  }

  /// Sends it and returns the number of parts.
  std::uint32_t post(std::uint32_t connection, std::int64_t row, std::int64_t slice, double size, bool fifo) {
    Fifo& places = fifos_[connection];
    const std::int64_t number = fifo ? places.taken + places.held() : places.taken++;
    const std::int64_t first = program_.flow_offset[connection], flows = program_.flow_offset[connection + 1] - first;
    const std::int64_t parts = program_.striped ? flows : 1;
    if (fifo) places.awaits.push_back(static_cast<std::uint32_t>(parts));
    for (std::int64_t part = 0; part < parts; ++part) {
      const auto flow = static_cast<std::uint32_t>(program_.flow[index(first + (number * parts + part) % flows)]);
      const double bytes = size / static_cast<double>(parts);
      if (every_slice_) note_posted(row, slice, flow, bytes);
      Queue& queue = queues_[flow];
      queue.messages.push_back({connection, number, bytes, times_.row.size() - 1});
      if (queue.messages.size() == queue.left + 1) stream(flow);
    }
    return static_cast<std::uint32_t>(parts);
  }

  void note_posted(std::int64_t row, std::int64_t slice, std::uint32_t flow, double bytes) {
    times_.row.push_back(row);
    times_.slice.push_back(slice);
    times_.flow.push_back(flow);
    times_.bytes.push_back(bytes);
    times_.path.push_back(-1);
    times_.cause.push_back(-1);
    times_.cause_left.push_back(0);
    for (std::vector<double>* column : {&times_.start, &times_.left, &times_.arrival}) column->push_back(0);
  }

  /// Puts the flow's next message on the wire.
  void stream(std::uint32_t flow) {
    Queue& queue = queues_[flow];
    const Posted& message = queue.messages[queue.left];
    const std::int32_t set = program_.route[flow];
    queue.path = chooser_.choose(set, program_.policy, message.bytes);
    wires_.send(flow, chooser_.way(set, queue.path), message.bytes, latency(set, queue.path));
    if (!every_slice_) return;
    times_.start[message.entry] = wires_.now();
    times_.path[message.entry] = queue.path;
    times_.cause[message.entry] = cause_.message;
    times_.cause_left[message.entry] = cause_.left ? 1 : 0;
  }

  /// The latency of the path; if it is -1, of the slowest path in its set.
  [[nodiscard]] double latency(std::int32_t set, std::int32_t path) const {
    if (path >= 0) return program_.latency[index(path)];
    const std::int64_t first = program_.paths.set_offset[index(set)], end = program_.paths.set_offset[index(set) + 1];
    return std::ranges::max(program_.latency.subspan(index(first), index(end - first)));
  }

  /// The lane's instruction has put its message on the wire, or has read what it reads.
  void sent(std::uint32_t number) {
    Lane& lane = lanes_[number];
    if (--lane.sending > 0) return;
    const std::int32_t into = program_.into[index(lane.first + lane.position)];
    if (into >= 0) take(into);
    step(number);
    wake(number);
  }

  void take(std::int32_t connection) {
    Fifo& fifo = fifos_[index(connection)];
    fifo.awaits.erase(fifo.awaits.begin());
    ++fifo.taken;
    wake(static_cast<std::uint32_t>(program_.feeder[index(connection)]));
  }

  void step(std::uint32_t number) {
    Lane& lane = lanes_[number];
    ++lane.position;
    if (lane.position == lane.length || skew_of(lane.first + lane.position) > lane.iteration) next_iteration(lane);
    std::erase_if(lane.waiters, [&](const Waiter& waiter) {
      if (!lane.has_done(waiter.iteration, waiter.position)) return false;
      lanes_[waiter.lane].asleep = false;
      wake(waiter.lane);
      return true;
    });
  }

  /// Skews never decrease along a lane, so the rows with a slice in an iteration are adjacent.
  void next_iteration(Lane& lane) {
    ++lane.iteration;
    while (lane.earliest < lane.length && skew_of(lane.first + lane.earliest) + lane.slices <= lane.iteration) {
      ++lane.earliest;
    }
    lane.position = lane.earliest;
    lane.iteration =
        lane.earliest == lane.length ? Lane::finished : std::max(lane.iteration, skew_of(lane.first + lane.earliest));
  }

  [[nodiscard]] std::int64_t skew_of(std::int64_t row) const { return program_.skew[index(row)]; }
  [[nodiscard]] std::int64_t slice_of(const Lane& lane) const {
    return lane.iteration - skew_of(lane.first + lane.position);
  }

  [[nodiscard]] double bytes(std::int64_t row, std::int64_t slice) const {
    double sum = 0;
    for (std::int64_t at = program_.chunk_offset[index(row)]; at < program_.chunk_offset[index(row) + 1]; ++at) {
      const std::size_t chunk = index(program_.chunk[index(at)]);
      const double most = program_.slice_bytes[chunk];
      sum += std::clamp(program_.chunk_bytes[chunk] - static_cast<double>(slice) * most, 0.0, most);
    }
    return sum;
  }

  /// Skips whole periods of a steady state, counting iterations from the leader's.
  void skip(std::size_t leader) {
    const std::int64_t base = lanes_[leader].iteration;
    std::int64_t lowest = base, highest = base;
    state_.clear();
    for (const Lane& lane : lanes_) {
      state_.push_back(lane.done() ? kFinished : (lane.iteration - base) * lane.length + lane.position);
      if (lane.done()) continue;
      // The slices of an iteration range from that of the lane's last row to that of its first.
      lowest = std::min(lowest, lane.iteration - skew_of(lane.first + lane.length - 1));
      highest = std::max(highest, lane.iteration - skew_of(lane.first));
    }
    if (lowest < 0) return;  // some lane has rows that have not started yet
    for (std::size_t connection = 0; connection < fifos_.size(); ++connection) {
      const Fifo& fifo = fifos_[connection];
      const std::int64_t flows = program_.flow_offset[connection + 1] - program_.flow_offset[connection];
      state_.insert(state_.end(), {fifo.taken % flows, fifo.held()});
      state_.insert(state_.end(), fifo.awaits.begin(), fifo.awaits.end());
    }
    for (const Queue& queue : queues_) {
      state_.insert(state_.end(),
                    {static_cast<std::int64_t>(queue.messages.size()), static_cast<std::int64_t>(queue.left)});
      for (const Posted& message : queue.messages) {
        state_.insert(state_.end(), {message.connection, message.number - fifos_[message.connection].taken,
                                     std::llround(message.bytes / share_)});
      }
    }
    wires_.describe(share_, moment_, state_);
    const auto found = steady_.skip(state_, base, lowest, highest, wires_.now());
    if (!found) return;
    for (Lane& lane : lanes_) {
      if (!lane.done()) lane.iteration += found->slices;
      for (Waiter& waiter : lane.waiters) waiter.iteration += found->slices;
    }
    wires_.skip(found->seconds);
  }

  const SimProgram& program_;
  Wires wires_;
  PathChooser chooser_;
  bool every_slice_;
  std::vector<Lane> lanes_;
  std::vector<std::uint32_t> lane_of_;  // per row
  std::vector<Fifo> fifos_;             // per connection
  std::vector<Queue> queues_;           // per flow
  std::vector<Runnable> runnable_;
  Cause cause_;  // of the current event
  SimTimes times_;
  SteadyState steady_;
  double share_ = 0, moment_ = 0;  // resolution of states, in bytes and in seconds
  std::vector<std::int64_t> state_;
};

template <class Item>
bool all_in(std::span<const Item> column, std::int64_t least, std::size_t limit) {
  return std::ranges::all_of(column,
                             [&](Item item) { return item >= least && item < static_cast<std::int64_t>(limit); });
}

bool cuts(std::span<const std::int64_t> offset, std::size_t pieces, std::size_t size) {
  return offset.size() == pieces + 1 && offset.front() == 0 && std::ranges::is_sorted(offset) &&
         offset.back() == static_cast<std::int64_t>(size);
}

bool positive(std::span<const double> column) {
  return std::ranges::all_of(column, [](double item) { return std::isfinite(item) && item > 0; });
}

}  // namespace

void SimProgram::validate() const {
  check_that(cuts(lane_offset, lanes(), rows()), "lane_offset does not cut the rows into lanes");
  check_that(
      begin.size() == lanes() && std::ranges::all_of(begin, [](double at) { return std::isfinite(at) && at >= 0; }),
      "begin must have a moment per lane, 0 or later");
  check_that(skew.size() == rows() && into.size() == rows() && signals.size() == rows(),
             "skew, into and signals must have an entry per row");
  for (std::size_t lane = 0; lane < lanes(); ++lane) {
    const auto skews = skew.subspan(index(lane_offset[lane]), index(lane_offset[lane + 1] - lane_offset[lane]));
    check_that(std::ranges::is_sorted(skews) && (skews.empty() || skews.front() >= 0), "skews decrease along a lane");
  }
  check_that(cuts(need_offset, rows(), need.size()), "need_offset does not cut `need` into rows");
  check_that(cuts(chunk_offset, rows(), chunk.size()), "chunk_offset does not cut `chunk` into rows");
  check_that(feeder.size() == connections() && drainer.size() == connections(),
             "feeder and drainer must have an entry per connection");
  check_that(cuts(flow_offset, connections(), flow.size()), "flow_offset does not cut `flow` into connections");
  check_that(all_in(flow, 0, route.size()), "a connection names no flow");
  check_that(positive(capacity), "capacities must be finite and positive");
  paths.validate(capacity.size());
  check_that(latency.size() == paths.paths(), "latency must have an entry per path");
  check_that(all_in(out, -1, connections()) && all_in(into, -1, connections()), "a row names no connection");
  check_that(all_in(need, 0, rows()), "a row needs a row that does not exist");
  check_that(all_in(chunk, 0, chunk_bytes.size()), "a row moves a chunk that does not exist");
  check_that(all_in(kind, 0, 3), "a connection is 0 fifo, 1 write or 2 read");
  check_that(all_in(feeder, 0, lanes()) && all_in(drainer, -1, lanes()), "a connection names no lane");
  check_that(all_in(route, 0, paths.sets()), "a flow names no set of paths");
  check_that(slice_bytes.size() == chunk_bytes.size(), "slice_bytes must have an entry per chunk");
  check_that(positive(slice_bytes), "slice_bytes must be finite and positive");
  for (std::size_t row = 0; row < rows(); ++row) {
    check_that(into[row] < 0 || (drainer[index(into[row])] >= 0 && kind[index(into[row])] == 0),
               "a row takes a message from a connection that is no FIFO");
  }
  for (std::size_t connection = 0; connection < connections(); ++connection) {
    check_that(kind[connection] != 0 || drainer[connection] >= 0, "a FIFO has no drainer");
    check_that(flow_offset[connection] < flow_offset[connection + 1], "a connection has no flow");
  }
}

SimTimes simulate(const SimProgram& program, bool every_slice) {
  program.validate();
  return ProgramRun(program, every_slice).run();
}

}  // namespace syntony
