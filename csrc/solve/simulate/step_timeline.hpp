// When the ops of a training step run, step after step, if lanes keep their order and share links.
//
//     compute   [ fwd 0 ][ fwd 1 ][ bwd 1 ]  [ bwd 0 ]         a queue launches its rows in order: dependencies ended,
//     queue     launch ─ latency ─▶ waits ─▶ [== on its links ==]    and room in its window
//     link      [== other ==][ = row = ]                       one row of each queue that is there, at equal rates;
//                            [= third =]                       of the most urgent queues only: the others pause
//
// A row that takes two links moves at the lower of its shares.
// A row of step s waits for rows of step s (`dep`) and of step s - 1 (`lag`). A message is two rows, one at each end,
// and moves once both are there. A `free` queue has no fixed order: it takes the most urgent ready row, one at a time,
// and thereby finds an order. Computing is a row on a link that nobody else uses: the processor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace syntony {

struct SimStep {
  std::span<const std::int64_t> order_offset;  // per queue,
  std::span<const std::int32_t> order;         // its rows, first to last
  std::span<const std::uint8_t> free;          // per queue: finds its own order
  std::span<const std::uint8_t> serial;        // per queue: one row at a time
  std::span<const double> window;              // per queue: bytes in flight; 0: no limit
  std::span<const std::int32_t> rank;          // per queue: the lower, the more urgent on a link
  std::span<const std::int32_t> device;        // per queue
  std::span<const std::uint8_t> computes;      // per queue: its rows are slowed by transfers
  std::span<const double> priority;            // per row: the lower, the earlier a free queue takes it
  std::span<const double> seconds;             // per row: on its links
  std::span<const double> latency;             // per row: between its launch and the use of its links
  std::span<const double> bytes;               // per row: counts against its queue's window
  std::span<const std::int64_t> dep_offset;    // per row,
  std::span<const std::int32_t> dep;           // rows that must have ended in the same step
  std::span<const std::int64_t> lag_offset;    // per row,
  std::span<const std::int32_t> lag;           // rows that must have ended in the previous step
  std::span<const std::int32_t> partner;       // per row: the other end of a message, or -1
  std::span<const std::int32_t> out, into;     // per row: the links it takes, or -1. Of a message: `out` of who sends,
                                               // `into` of who receives
  double contention = 0;                       // a device computes slower by this fraction while it transfers data
  std::int32_t steps = 1;

  [[nodiscard]] std::size_t queues() const { return free.size(); }
  [[nodiscard]] std::size_t rows() const { return seconds.size(); }
};

/// What an op last waited for before it took its links.
enum class Wait : std::uint8_t {
  nothing,     // nothing held it back
  dependency,  // the op in `blame`
  lane,        // `blame`, before it on its queue
  window,      // `blame`, whose bytes filled the window
  link,        // `blame`, which left the link last, or was there and shares it
  partner,     // `blame`, the other end of the message
};

/// Columns of steps x rows, step by step. `blame` is an index of that kind, or -1. `end` is infinite if a row can never
/// run.
struct StepTimes {
  std::vector<double> ready, launch, start, end;
  std::vector<std::uint8_t> wait;
  std::vector<std::int64_t> blame;
};

/// Throws std::invalid_argument naming the column if the columns are inconsistent.
StepTimes simulate(const SimStep& plan);

}  // namespace syntony
