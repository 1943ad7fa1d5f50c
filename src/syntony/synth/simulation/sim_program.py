"""SimProgram: the core's input columns for simulating a Program (csrc/solve/simulate/sim_program.hpp)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony.base.columns import Columns, Float64, Int32, Int64, UInt8
from syntony.synth.simulation.flows import PathPolicy, Paths

Floats = NDArray[np.float64]
Integers = NDArray[np.signedinteger]


@dataclass(frozen=True, eq=False)
class SimProgram(Columns):
    """A Program as the simulator sees it.

    Lanes, rows (instructions) and connections are numbered consecutively; an offset column of k + 1 entries cuts
    another column into k pieces.

    lane_offset, lane_slices  rows of every lane; how often it runs them
    begin                     when it begins, in seconds: 0, or later if its rank arrives late
    skew                      per row: the slices by which it lags its lane's iteration
    out, into                 per row: the connection that it starts a message on, and takes one from; -1: none
    signals                   per row: 1 if its message counts although it is empty
    need_offset, need         per row: the rows that must be done in the same slice
    chunk_offset, chunk       per row: the chunks of its message
    chunk_bytes, slice_bytes  bytes of every chunk, and of a full slice of it
    kind                      per connection: syntony.synth.simulation.connections.Kind
    feeder, drainer           its lanes; drainer -1: none
    flow_offset, flow         per connection: its flows; its messages take turns over them
    route                     per flow: its set of `paths`; it carries one message at a time
    paths                     among which messages choose by `policy`; their weights are messages of this kind
    latency                   seconds, of every path
    capacity                  bytes/s, of every link
    fifo_depth                messages that a connection holds
    buffered                  a row is done once its message has a place in its FIFO, not when it has left
    striped                   a message uses all flows of its connection at once, in equal parts
    """

    lane_offset: Int64
    lane_slices: Int64
    begin: Float64
    skew: Int64
    out: Int32
    into: Int32
    signals: UInt8
    need_offset: Int64
    need: Int32
    chunk_offset: Int64
    chunk: Int32
    chunk_bytes: Float64
    slice_bytes: Float64
    kind: UInt8
    feeder: Int32
    drainer: Int32
    flow_offset: Int64
    flow: Int32
    route: Int32
    paths: Paths
    latency: Float64
    capacity: Float64
    fifo_depth: int
    buffered: bool = False
    striped: bool = False
    policy: PathPolicy = PathPolicy.fixed


@dataclass(frozen=True, eq=False)
class LaneTimes:
    """The result; seconds.

    stuck_row, stuck_slice    the first row that never finishes, and its slice; -1 if all finish
    row, slice, flow, path    of every message (or part of a striped one), if requested; path -1: all of its set
    bytes                     its size
    start, left, arrival      its times
    cause, cause_left         the last message that it waited for before it started, -1: none; and whether that one only
                              had to leave, or to arrive
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
    """Runs the simulation. `every_slice` simulates all slices, and keeps messages and rates; otherwise steady states
    are skipped. Raises ValueError if columns are inconsistent."""
    from syntony import _solve

    return LaneTimes(**_solve.simulate_lanes(program, every_slice))
