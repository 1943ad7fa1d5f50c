"""SimStep: the core's input columns for simulating training steps (csrc/solve/simulate/step_timeline.hpp)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony import _solve
from syntony.base.columns import Columns, Float64, Int32, Int64, UInt8


@dataclass(frozen=True, eq=False)
class SimStep(Columns):
    """A step as the simulator sees it: Ops are rows; lanes, and messages of a device to each peer, are queues.

    order_offset, order  per queue: its rows, first to last
    free                 per queue: 1 if it chooses its own order, by `priority`
    serial               per queue: 1 if it has one row at a time
    window               per queue: bytes in flight; 0: no limit
    rank                 per queue: priority on a link, lower first
    device               per queue
    computes             per queue: 1 if communication slows down its rows
    priority             per row: a free queue takes lower ones first
    seconds              per row: on its links
    latency              per row: seconds between its launch and its links
    bytes                per row: counts against its queue's window
    dep_offset, dep      per row: rows that must have ended in the same step
    lag_offset, lag      per row: rows that must have ended in the step before
    partner              per row: the other end of a message, or -1
    out, into            per row: its links, or -1. For a message: `out` of the sender, `into` of the receiver
    contention           a device computes slower by this fraction while it communicates
    """

    order_offset: Int64
    order: Int32
    free: UInt8
    serial: UInt8
    window: Float64
    rank: Int32
    device: Int32
    computes: UInt8
    priority: Float64
    seconds: Float64
    latency: Float64
    bytes: Float64
    dep_offset: Int64
    dep: Int32
    lag_offset: Int64
    lag: Int32
    partner: Int32
    out: Int32
    into: Int32
    contention: float


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Times of the rows: (steps, rows), in seconds. `end` is infinite for rows that can never run.

    ready, launch, start, end  its dependencies had ended; its queue released it; it occupied its links, and left them
    wait, blame                what it waited for last (`Wait` of simulation.py), and the row x step of that, or -1
    """

    ready: NDArray[np.float64]
    launch: NDArray[np.float64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    wait: NDArray[np.uint8]
    blame: NDArray[np.int64]


def simulate_sim_step(step: SimStep, steps: int) -> StepTimes:
    """Simulates `steps` steps in a row. Raises ValueError, naming the column, if columns are inconsistent."""
    times = _solve.simulate_steps(step, steps)
    return StepTimes(**{name: column.reshape(steps, -1) for name, column in times.items()})
