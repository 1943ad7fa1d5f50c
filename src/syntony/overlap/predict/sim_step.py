"""SimStep: the core's input columns for simulating training steps (csrc/solve/simulate/step_timeline.hpp)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

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

    def by_step(self, period: int) -> StepTimes:
        """Of steps that were simulated so many in a row as one (in_a_row): a row for each of them."""
        steps = len(self.end) * period
        return StepTimes(**{name: column.reshape(steps, -1) for name, column in vars(self).items()})


def in_a_row(step: SimStep, rare: NDArray[np.bool_], period: int, delay: int) -> SimStep:
    """Several steps as one. Row r of step s becomes row s x rows + r.

    rare     rows that only the last of `period` steps has; elsewhere they take no time and no link
    delay    so many runs of such rows may be under way; 0: one, which others await

    What a row awaits in the step before is in the same row of steps, except for the first one's. Behind a delay it is
    the run of that row so many runs ago.
    """
    rows, steps = len(step.seconds), period * max(1, delay)
    shifts = rows * np.arange(steps)
    last = np.arange(steps) % period == period - 1
    idle = (rare & ~last[:, None]).ravel()
    deps, lags = _lists(step.dep_offset, step.dep), _lists(step.lag_offset, step.lag)
    late = [lag[rare[lag]] if delay else lag[:0] for lag in lags]
    soon = [lag[~rare[lag]] if delay else lag for lag in lags]
    order_offset, order = _columns([queue + shifts[:, None] for queue in _lists(step.order_offset, step.order)])
    later = [
        np.concatenate([dep + shift, lag + shift - rows])
        for shift in shifts[1:]
        for dep, lag in zip(deps, soon, strict=True)
    ]
    dep_offset, dep = _columns([*deps, *later])
    before = [
        np.concatenate([lag + shifts[-1] if not turn else lag[:0], far + shift if last[turn] else far[:0]])
        for turn, shift in enumerate(shifts)
        for lag, far in zip(soon, late, strict=True)
    ]
    lag_offset, lag = _columns(before)

    def busy(column: NDArray[Any], nothing: int) -> NDArray[Any]:
        return np.where(idle, nothing, np.tile(column, steps))

    return replace(
        step,
        order_offset=order_offset,
        order=order,
        dep_offset=dep_offset,
        dep=dep,
        lag_offset=lag_offset,
        lag=lag,
        partner=np.where(step.partner < 0, -1, step.partner + shifts[:, None]).ravel(),
        priority=np.tile(step.priority, steps),
        seconds=busy(step.seconds, 0),
        latency=busy(step.latency, 0),
        bytes=busy(step.bytes, 0),
        out=busy(step.out, -1),
        into=busy(step.into, -1),
    )


def _lists(offset: Int64, values: Int32) -> list[Int64]:
    """A column of lists, list by list."""
    return [values[begin:end].astype(np.int64) for begin, end in pairwise(offset)]


def _columns(lists: Sequence[Int64]) -> tuple[Int64, Int64]:
    """Offsets and values of such a column."""
    flat = [one.ravel() for one in lists]
    return np.cumsum([0, *map(len, flat)]), np.concatenate([*flat, np.zeros(0, np.int64)])


def simulate_sim_step(step: SimStep, steps: int) -> StepTimes:
    """Simulates `steps` steps in a row. Raises ValueError, naming the column, if columns are inconsistent."""
    times = _solve.simulate_steps(step, steps)
    return StepTimes(**{name: column.reshape(steps, -1) for name, column in times.items()})
