// List scheduling: when each task begins, if it has its links to itself and the most urgent goes first.
//
//     link 0   ready: A (2 hops to go), B (5 to go)   ──▶  B first; A when B has left
//     link 1   busy until 3.1                          ──▶  then the most urgent of those that are ready by then
//
// A task needs all of its links at once. No link is idle while a task that needs only idle ones is ready. Urgent is
// what has the longest way to go (critical path first: Graham, "Bounds on multiprocessing timing anomalies", 1969). Not
// simulated time: on real wires messages share links (flows.hpp); it is an order that they can be given.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

/// Task t takes link[offset[t]] .. link[offset[t + 1] - 1], below `links`; without links it takes no time at all.
/// Task waiter[i] begins when task awaited[i] has arrived.
struct Tasks {
  std::uint32_t links = 0;
  std::span<const double> seconds;  ///< for which its links are busy
  std::span<const double> latency;  ///< seconds from when it has left them to its arrival
  std::span<const double> lag;      ///< seconds by which it is less urgent than its way to go says
  std::span<const std::int64_t> offset;
  std::span<const std::int32_t> link;
  std::span<const std::int64_t> waiter, awaited;
};

/// start[t]: seconds; infinite for what waits in a circle. depth[t]: of the longest chain of waits that leads to it.
struct ListSchedule {
  std::vector<double> start;
  std::vector<std::int32_t> depth;
};

/// Throws std::invalid_argument that names the column and the row.
[[nodiscard]] ListSchedule list_schedule(const Tasks& tasks);

}  // namespace syntony
