// SimProgram: a Program as seen by a simulation: instructions that start messages, take messages, and wait for each
// other.
//
//    rank 0, lane 0:  send ─────────────▶ send ─────────▶ ..       a send lasts until its last byte is on the wire
//    FIFO 0 -> 1      [=== slice 0 ===]·alpha·▶[=== slice 1 ===]   space for `fifo_depth` messages, moving or arrived
//    rank 1, lane 2:                  recv_reduce_send ──▶ ..      takes a message that has arrived; its space in
//                                                                  the FIFO is free when the instruction is done
//
// This is what an executor does (core/progress/executor.hpp), timed by the wires alone: every lane runs its rows once
// per slice, each `skew` iterations late (program/program.hpp); a row waits for others in the same slice, for its
// message, for space; what is empty in a slice is not sent. A late rank is one whose lanes begin late. Lanes, rows and
// connections are numbered consecutively; columns and offsets as in flows.hpp.
//
//     connection 0  m0 m2 ──▶ flow 0  [== m0 ==][== m1 ==][== m2 ..      messages of a connection take turns over its
//     connection 1  m1    ──┘                                            flows; a flow carries one at a time, in order
//
// With `buffered`, a message is sent from its place in the FIFO: a row is done once it has a place, not when the
// message has left. With `striped`, a message goes over all flows of its connection at once, in equal parts, and has
// arrived when all have.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "solve/simulate/links/paths.hpp"
#include "solve/simulate/links/wires.hpp"

namespace syntony {

enum class ConnectionKind : std::uint8_t {
  fifo,   // messages wait at the other end until they are taken
  write,  // one-sided: done when the last byte is on the wire
  read,   // one-sided: done when the last byte has arrived
};

struct SimProgram {
  std::span<const std::int64_t> lane_offset;         // rows of every lane
  std::span<const std::int64_t> lane_slices;         // how often it runs them
  std::span<const double> begin;                     // and when it starts, in seconds
  std::span<const std::int64_t> skew;                // per row: number of slices behind its lane's iteration
  std::span<const std::int32_t> out, into;           // per row: the connections on which it starts and takes a message
  std::span<const std::uint8_t> signals;             // per row: whether its message counts even if empty
  std::span<const std::int64_t> need_offset;         // per row,
  std::span<const std::int32_t> need;                // rows of other lanes that must be done in the same slice
  std::span<const std::int64_t> chunk_offset;        // per row,
  std::span<const std::int32_t> chunk;               // the chunks of its message
  std::span<const double> chunk_bytes, slice_bytes;  // of every chunk, and of a full slice of it

  std::span<const std::uint8_t> kind;             // per connection
  std::span<const std::int32_t> feeder, drainer;  // its lanes; drainer -1: nobody
  std::span<const std::int64_t> flow_offset;      // per connection,
  std::span<const std::int32_t> flow;             // its flows
  std::span<const std::int32_t> route;            // per flow: its set of paths
  Paths paths;
  std::span<const double> latency;   // seconds, of every path
  std::span<const double> capacity;  // bytes/s, of every link
  PathPolicy policy = PathPolicy::fixed;
  std::int64_t fifo_depth = 1;
  bool buffered = false, striped = false;

  [[nodiscard]] std::size_t lanes() const { return lane_slices.size(); }
  [[nodiscard]] std::size_t rows() const { return out.size(); }
  [[nodiscard]] std::size_t connections() const { return kind.size(); }
  /// Throws std::invalid_argument naming what is wrong. Checks memory safety only: the caller has verified the Program.
  void validate() const;
};

struct SimTimes {
  double seconds = 0;
  /// The first row, by lane, that never finishes in `stuck_slice`; -1 if all is done.
  std::int64_t stuck_row = -1, stuck_slice = -1;
  // One entry per message, or part of a striped one, if requested. `path` is -1 if it took its whole set. `cause` is
  // the message that it waited for last, -1 for none: until that had left (`cause_left`), or had arrived.
  std::vector<std::int64_t> row, slice, flow, path, cause;
  std::vector<std::uint8_t> cause_left;
  std::vector<double> bytes, start, left, arrival;
  std::vector<LinkRate> timeline;
};

/// `every_slice` simulates every slice and keeps the messages and the rates of links; otherwise steady states are
/// skipped (steady_state.hpp), unless loads decide on paths.
[[nodiscard]] SimTimes simulate(const SimProgram& program, bool every_slice);

}  // namespace syntony
