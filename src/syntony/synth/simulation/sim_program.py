"""SimProgram: the columns that the core simulates a Program from (csrc/solve/simulate/sim_program.hpp)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony.synth.simulation.flows import PathPolicy, Paths

Floats = NDArray[np.float64]
Integers = NDArray[np.signedinteger]


@dataclass(frozen=True, eq=False)
class SimProgram:
    """A Program as the simulator sees it.

    Lanes, rows (instructions) and connections are numbered through; an offset column of k + 1 entries cuts another
    column into k pieces.

    lane_offset, lane_slices  rows of every lane; how often it runs them
    skew                      per row: the slices that it is behind its lane's iteration
    out, into                 per row: the connection that it starts a message on, and takes one from; -1: none
    signals                   per row: 1 where its message counts though it is empty
    need_offset, need         per row: the rows that must be done in the same slice
    chunk_offset, chunk       per row: the chunks of its message
    chunk_bytes, slice_bytes  bytes of every chunk, and of a full slice of it
    kind                      per connection: syntony.synth.simulation.connections.Kind
    feeder, drainer           its lanes; drainer -1: nobody
    flow_offset, flow         per connection: its flows; its messages take turns over them
    route                     per flow: its set of `paths`; it carries one message at a time
    paths                     among which messages pick their way by `policy`; their weights are messages of this kind
    latency                   seconds, of every path
    capacity                  bytes/s, of every link
    fifo_depth                messages that a connection holds
    buffered                  a row is done once its message has a place in its FIFO, not when it has left
    striped                   a message goes over all flows of its connection at once, in equal parts
    """

    lane_offset: Integers
    lane_slices: Integers
    skew: Integers
    out: Integers
    into: Integers
    signals: Integers
    need_offset: Integers
    need: Integers
    chunk_offset: Integers
    chunk: Integers
    chunk_bytes: Floats
    slice_bytes: Floats
    kind: Integers
    feeder: Integers
    drainer: Integers
    flow_offset: Integers
    flow: Integers
    route: Integers
    paths: Paths
    latency: Floats
    capacity: Floats
    fifo_depth: int
    buffered: bool = False
    striped: bool = False
    policy: PathPolicy = PathPolicy.fixed

    def __post_init__(self) -> None:
        for name, dtype in _DTYPES.items():
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype))


@dataclass(frozen=True, eq=False)
class LaneTimes:
    """What happens; seconds.

    stuck_row, stuck_slice    the first row that never comes to its end, and in which slice; -1 where all is done
    row, slice, flow, path    of every message (or part of a striped one), where they were asked for; path -1: all of
                              its set
    bytes                     what it carries
    start, left, arrival      its times
    cause, cause_left         the message that it waited for last before it started, -1: none; and whether that had to
                              leave only, or to be there
    times, link, rate         as in syntony.synth.simulation.flows.FlowTimes
    """

    seconds: float
    stuck_row: int
    stuck_slice: int
    row: Integers
    slice: Integers
    flow: Integers
    path: Integers
    bytes: Floats
    start: Floats
    left: Floats
    arrival: Floats
    cause: Integers
    cause_left: Integers
    times: Floats
    link: Integers
    rate: Floats


def simulate_sim_program(program: SimProgram, *, every_slice: bool = False) -> LaneTimes:
    """Simulates it. `every_slice` lives through all slices, and keeps messages and rates; else steady states are
    skipped. Raises ValueError on columns that do not fit together."""
    from syntony import _solve

    return LaneTimes(**_solve.simulate_lanes(program, every_slice))


_DTYPES: dict[str, type[np.generic]] = {
    "lane_offset": np.int64,
    "lane_slices": np.int64,
    "skew": np.int64,
    "out": np.int32,
    "into": np.int32,
    "signals": np.uint8,
    "need_offset": np.int64,
    "need": np.int32,
    "chunk_offset": np.int64,
    "chunk": np.int32,
    "chunk_bytes": np.float64,
    "slice_bytes": np.float64,
    "kind": np.uint8,
    "feeder": np.int32,
    "drainer": np.int32,
    "flow_offset": np.int64,
    "flow": np.int32,
    "route": np.int32,
    "latency": np.float64,
    "capacity": np.float64,
}
