// List scheduling: when each task starts if it has its links to itself and the most urgent task goes first.
//
//    link 0   ready: A (2 hops to go), B (5 to go)   ──▶  B first; A when B has left
//    link 1   busy until 3.1                          ──▶  then the most urgent task that is ready by then
//
// A task needs all of its links at once. No link is idle while a task that needs only idle ones is ready. The most
// urgent task has the longest remaining path (critical path first: Graham, "Bounds on multiprocessing timing
// anomalies", 1969). This is not simulated time, because on real wires messages share links (flows.hpp), but an order
// for them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

/// Task t takes the links of route[t]: those of route r are link[offset[r]] .. link[offset[r + 1] - 1], below `links`.
/// Without links it waits for none. Task waiter[i] starts when task awaited[i] has arrived.
struct Tasks {
  std::uint32_t links = 0;
  std::span<const double> seconds;  ///< how long its links are busy
  std::span<const double> latency;  ///< seconds from leaving its links to its arrival
  std::span<const double> lag;      ///< seconds by which it is less urgent than its remaining path suggests
  std::span<const std::int32_t> route;
  std::span<const std::int64_t> offset;
  std::span<const std::int32_t> link;
  std::span<const std::int64_t> waiter, awaited;
};

/// start[t]: seconds; infinite for tasks that wait in a cycle. depth[t]: length of the longest chain of waits leading
/// to it.
struct ListSchedule {
  std::vector<double> start;
  std::vector<std::int32_t> depth;
};

/// Throws std::invalid_argument naming the column and the row.
[[nodiscard]] ListSchedule list_schedule(const Tasks& tasks);

}  // namespace syntony
