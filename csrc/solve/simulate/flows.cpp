#include "solve/simulate/flows.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "solve/column_checks.hpp"
#include "solve/simulate/links/path_chooser.hpp"

namespace syntony {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Who waits for a flow: the waits of all flows, inverted.
class Waiting {
 public:
  Waiting(std::span<const std::int64_t> offset, std::span<const std::int32_t> awaited)
      : offset_(offset.size()), waiter_(awaited.size()) {
    for (const std::int32_t flow : awaited) ++offset_[static_cast<std::size_t>(flow) + 1];
    for (std::size_t flow = 1; flow < offset_.size(); ++flow) offset_[flow] += offset_[flow - 1];
    std::vector<std::size_t> next(offset_.begin(), offset_.end() - 1);
    for (std::size_t flow = 0; flow + 1 < offset.size(); ++flow) {
      for (auto at = static_cast<std::size_t>(offset[flow]); at < static_cast<std::size_t>(offset[flow + 1]); ++at) {
        waiter_[next[static_cast<std::size_t>(awaited[at])]++] = static_cast<std::uint32_t>(flow);
      }
    }
  }
  [[nodiscard]] std::span<const std::uint32_t> of(std::uint32_t flow) const {
    return std::span(waiter_).subspan(offset_[flow], offset_[flow + 1] - offset_[flow]);
  }

 private:
  std::vector<std::size_t> offset_;
  std::vector<std::uint32_t> waiter_;
};

/// One simulation.
class FlowRun {
 public:
  FlowRun(const Flows& flows, bool timeline)
      : flows_(flows),
        wires_({flows.capacity.begin(), flows.capacity.end()}, timeline),
        chooser_(
            flows.paths, flows.capacity,
            std::ranges::find(flows.policy, static_cast<std::uint8_t>(PathPolicy::least_loaded)) != flows.policy.end()),
        wait_arrival_(flows.after_offset, flows.after),
        wait_left_(flows.after_left_offset, flows.after_left),
        pending_(flows.size()) {
    for (std::vector<double>* column : {&times_.start, &times_.left, &times_.arrival}) {
      column->assign(flows.size(), kNever);
    }
    times_.path.assign(flows.size(), -1);
  }

  FlowTimes run() && {
    for (std::uint32_t flow = 0; flow < flows_.size(); ++flow) {
      const std::int64_t waits = flows_.after_offset[flow + 1] - flows_.after_offset[flow] +
                                 flows_.after_left_offset[flow + 1] - flows_.after_left_offset[flow];
      pending_[flow] = static_cast<std::uint32_t>(waits);
      if (waits == 0) release(flow);
    }
    start_ready();
    for (auto events = wires_.advance(); !events.empty(); events = wires_.advance()) {
      for (const WireEvent& event : events) note(event);
      start_ready();
    }
    times_.timeline.assign(wires_.timeline().begin(), wires_.timeline().end());
    return std::move(times_);
  }

 private:
  void note(const WireEvent& event) {
    const std::uint32_t flow = event.tag;
    switch (event.kind) {
      case WireEvent::Kind::left:
        times_.left[flow] = wires_.now();
        chooser_.leave(flows_.set[flow], times_.path[flow], flows_.bytes[flow]);
        for (const std::uint32_t waiter : wait_left_.of(flow)) fulfil(waiter);
        break;
      case WireEvent::Kind::arrived:
        times_.arrival[flow] = wires_.now();
        for (const std::uint32_t waiter : wait_arrival_.of(flow)) fulfil(waiter);
        break;
      case WireEvent::Kind::woken:
        ready_.push_back(flow);
        break;
    }
  }

  void fulfil(std::uint32_t flow) {
    if (--pending_[flow] == 0) release(flow);
  }

  void release(std::uint32_t flow) {
    if (flows_.release[flow] > wires_.now()) {
      wires_.wake(flow, flows_.release[flow]);
    } else {
      ready_.push_back(flow);
    }
  }

  void start_ready() {
    std::ranges::sort(ready_);  // so that choices do not depend on the order of simultaneous events
    for (const std::uint32_t flow : ready_) {
      times_.start[flow] = wires_.now();
      const std::int32_t set = flows_.set[flow];
      times_.path[flow] = chooser_.choose(set, static_cast<PathPolicy>(flows_.policy[flow]), flows_.bytes[flow]);
      wires_.send(flow, chooser_.way(set, times_.path[flow]), flows_.bytes[flow], flows_.latency[flow]);
    }
    ready_.clear();
  }

  const Flows& flows_;
  Wires wires_;
  PathChooser chooser_;
  Waiting wait_arrival_, wait_left_;
  std::vector<std::uint32_t> pending_;  // number of flows that a flow still waits for
  std::vector<std::uint32_t> ready_;
  FlowTimes times_;
};

}  // namespace

void Flows::validate() const {
  check_size("latency", latency, size());
  check_size("release", release, size());
  check_size("set", set, size());
  check_size("policy", policy, size());
  check_size("after_offset", after_offset, size() + 1);
  check_size("after_left_offset", after_left_offset, size() + 1);
  check_offset("after_offset", after_offset, after.size(), 0);
  check_offset("after_left_offset", after_left_offset, after_left.size(), 0);
  paths.validate(capacity.size());
  check_amounts("bytes", bytes, false);
  check_amounts("latency", latency, false);
  check_amounts("release", release, false);
  check_amounts("capacity", capacity, true);
  check_numbers("after", after, size());
  check_numbers("after_left", after_left, size());
  check_numbers("set", set, paths.sets());
  for (std::size_t flow = 0; flow < size(); ++flow) {
    if (policy[flow] >= kPathPolicies) {
      refuse("policy", flow, "is " + std::to_string(policy[flow]) + "; policies are 0 fixed, 1 spray, 2 least_loaded");
    }
  }
}

FlowTimes simulate(const Flows& flows, bool timeline) {
  flows.validate();
  return FlowRun(flows, timeline).run();
}

}  // namespace syntony
