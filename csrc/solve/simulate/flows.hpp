// Flows, the plainest input of a simulation: bytes over links, started once certain other flows are done.
//
//     flow 0  [=====]··▶           latency: paid after the last byte has left
//     flow 1         [===]··▶      after_left 0: a lane sends one message after another
//     flow 2            [===]··▶   after 0: passes on what has arrived
//
// A flow picks its path when it starts, among the paths of its set (paths.hpp). Everything is columns; an offset column
// of k + 1 entries cuts another column into k pieces.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "solve/simulate/links/paths.hpp"
#include "solve/simulate/links/wires.hpp"

namespace syntony {

struct Flows {
  std::span<const double> bytes;
  std::span<const double> latency;  // seconds
  std::span<const double> release;  // seconds; earliest start
  std::span<const std::int64_t> after_offset, after_left_offset;
  std::span<const std::int32_t> after;       // flows that must have arrived,
  std::span<const std::int32_t> after_left;  // and flows that must have left, before this one starts
  std::span<const std::int32_t> set;
  std::span<const std::uint8_t> policy;

  Paths paths;
  std::span<const double> capacity;  // bytes/s of every link

  [[nodiscard]] std::size_t size() const { return bytes.size(); }
  /// Throws std::invalid_argument naming the column and the row.
  void validate() const;
};

/// In seconds; infinite for flows that never start because they wait in a cycle.
struct FlowTimes {
  std::vector<double> start, left, arrival;
  std::vector<std::int32_t> path;  // taken; -1 if several were, or none
  std::vector<LinkRate> timeline;  // on request; by time
};

[[nodiscard]] FlowTimes simulate(const Flows& flows, bool timeline);

}  // namespace syntony
