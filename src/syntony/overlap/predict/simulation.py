"""Predicts a Plan: simulates several steps in a row and returns a steady one. The top of
csrc/solve/simulate/step_timeline.hpp has the rules of lanes and links; here Ops become its columns.

A collective uses both directions of its device's link, a message the outgoing one of the sender and the incoming one of
the receiver. Messages between two devices have a queue per direction, as in the PlanRunner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.overlap.predict.sim_step import SimStep, StepTimes, in_a_row, simulate_sim_step
from syntony.overlap.step.cost import Cost, Doubles
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.plan import Lane, Plan

Integers = NDArray[np.int64]


class Wait(IntEnum):
    """What an Op waited for last before it started. For all but NOTHING, the Op is in `Timeline.blame`."""

    NOTHING = 0
    DEPENDENCY = 1  # an input
    LANE = 2  # its predecessor in its lane's order
    WINDOW = 3  # bytes in flight
    LINK = 4  # the Op that left its link last, or that was there and shares it
    PARTNER = 5  # the other end of the message


@dataclass(frozen=True)
class Timeline:
    """A steady step. Columns have a row per Op of `plan.graph`; times in seconds since the step's first computation.

    ready, launch    when all its dependencies had ended; when its lane released it
    start, end       computing, or on the link
    wait             what it waited for last (Wait), and
    blame            the row of that Op, or -1; it may belong to the previous step
    seconds          from one step to the next; on average, if some Ops are not in every step (Graph.every): this is
                     then a step with all of them
    busy             per lane, seconds for which its Ops compute or are on the link
    peak             per device, the most bytes held by Ops
    exposed          per communication Op, its seconds while its device computes nothing. Time exposed by two lanes at
                     once counts for both. Like `busy`, on average over steps
    """

    plan: Plan
    cost: Cost
    ready: Doubles
    launch: Doubles
    start: Doubles
    end: Doubles
    wait: NDArray[np.uint8]
    blame: Integers
    seconds: float
    busy: Mapping[Lane, float]
    peak: Mapping[int, float]
    exposed: Mapping[OpKey, float]

    @cached_property
    def row(self) -> Mapping[OpKey, int]:
        """By key of an Op."""
        return {op.key: row for row, op in enumerate(self.plan.graph)}

    def idle(self, device: int) -> float:
        """Seconds of the step in which a device computes nothing."""
        return self.seconds - self.busy.get((device, COMPUTE), 0.0)


def simulate(plan: Plan, cost: Cost, steps: int = 5) -> Timeline:
    """The steady step, after at least `steps` - 2 others. Raises UserError if Ops would wait forever."""
    step = sim_step_of(plan.graph, cost, plan.orders, plan.windows, plan.priorities)
    every = np.array([plan.graph.every(op) for op in plan.graph], np.int64)
    layout = plan.graph.layout
    local, delay = (layout.local, layout.delay) if layout is not None else (1, 0)
    period = local * max(1, delay)
    if period > 1:
        step = in_a_row(step, np.array([op.lane == "islands" for op in plan.graph], bool), local, delay)
    for count in (steps, 4 * steps):
        times = simulate_sim_step(step, count)
        if np.isinf(times.end).any():
            raise _stuck(plan, times.by_step(period).end)
        finish = times.end.max(axis=1, initial=0.0)
        last = finish[-2] - finish[-3]
        if abs(finish[-3] - finish[-4] - last) <= 1e-6 * last:
            break
        last = (finish[-2] - finish[count // 2]) / (count - 2 - count // 2)  # it alternates
    return _timeline(plan, cost, times.by_step(period), (count - 1) * period - 1, float(last) / period, every)


def sim_step_of(
    graph: Graph,
    cost: Cost,
    orders: Mapping[Lane, Iterable[OpKey]],
    windows: Mapping[str, int],
    priorities: Mapping[str, int],
    urgency: Mapping[OpKey, float] | None = None,
    choosing: Iterable[str] = (),
) -> SimStep:
    """The input columns of the core.

    choosing    lanes that choose their own order, by the `urgency` of Ops (lower first), then readiness
    """
    ops = graph.ops
    row_of = {op.key: row for row, op in enumerate(ops)}
    queues: dict[tuple[object, ...], list[int]] = {}
    for lane, keys in orders.items():
        for key in keys:
            row = row_of[key]
            op = ops[row]
            queues.setdefault((*lane, op.kind, op.peer) if op.peer >= 0 else lane, []).append(row)
    firsts = [ops[rows[0]] for rows in queues.values()]
    places: dict[int, int] = {}
    for op in firsts:
        places.setdefault(op.device, len(places))
    numbers: dict[tuple[int, str, str], int] = {}
    wires = cost.wires_of(graph)

    def link(op: Op, way: str) -> int:
        if op.lane == COMPUTE:
            return numbers.setdefault((op.device, COMPUTE, ""), len(numbers)) if way == "out" else -1
        if op.kind is (Kind.RECV if way == "out" else Kind.SEND):
            return -1
        return numbers.setdefault((op.device, wires[op.lane].link, way), len(numbers))

    seconds, latency = cost.seconds(graph)
    sends = {op.key: row for row, op in enumerate(ops) if op.kind is Kind.SEND}
    partner = np.full(len(ops), -1, np.int32)
    for row, op in enumerate(ops):
        if op.kind is Kind.RECV:
            other = sends.get(op.key.sender)
            if other is None:
                raise UserError(f"op {op.key!r} receives what no op sends")
            partner[row], partner[other] = other, row
    chosen = set(choosing)
    return SimStep(
        order_offset=_offsets(queues.values()),
        order=np.fromiter((row for rows in queues.values() for row in rows), np.int32),
        free=np.array([op.lane in chosen for op in firsts], np.uint8),
        serial=np.array([op.lane == COMPUTE for op in firsts], np.uint8),
        window=np.array([float(windows.get(op.lane, 0)) for op in firsts]),
        rank=np.array([priorities.get(op.lane, 0) for op in firsts], np.int32),
        device=np.array([places[op.device] for op in firsts], np.int32),
        computes=np.array([op.lane == COMPUTE for op in firsts], np.uint8),
        priority=np.array([urgency.get(op.key, 0.0) for op in ops]) if urgency else np.zeros(len(ops)),
        seconds=seconds,
        latency=latency,
        bytes=np.array([op.amount if op.kind.moves else 0.0 for op in ops]),
        dep_offset=_offsets(op.deps for op in ops),
        dep=np.fromiter((row_of[key] for op in ops for key in op.deps), np.int32),
        lag_offset=_offsets(op.lagged for op in ops),
        lag=np.fromiter((row_of[key] for op in ops for key in op.lagged), np.int32),
        partner=partner,
        out=np.array([link(op, "out") for op in ops], np.int32),
        into=np.array([link(op, "into") for op in ops], np.int32),
        contention=cost.contention,
    )


def _offsets(rows: Iterable[Any]) -> Integers:
    return np.fromiter(accumulate((len(row) for row in rows), initial=0), np.int64)


def _stuck(plan: Plan, ends: Doubles) -> UserError:
    """Finds an Op that never ends although its dependencies are met, so that only its lane blocks it."""
    step = int(np.argwhere(np.isinf(ends))[0][0])
    never = {op.key for op, end in zip(plan.graph, ends[step], strict=True) if np.isinf(end)}
    for (device, lane), keys in plan.orders.items():
        held = [key for key in keys if key in never]
        for key in held[1:]:
            if never.isdisjoint(plan.graph[key].deps):
                return UserError(
                    f"lane {lane!r} of device {device} waits forever: {key!r} could go, but {held[0]!r} is before it "
                    "in the order"
                )
    return UserError(f"ops wait forever for the other end of a message: {', '.join(map(str, sorted(never)[:4]))}")


def _timeline(plan: Plan, cost: Cost, times: StepTimes, shown: int, seconds: float, every: Integers) -> Timeline:
    """The timeline of the step `shown`. `every`: by row, Graph.every."""
    ops, count = plan.graph.ops, len(plan.graph)
    computes = np.array([op.lane == COMPUTE for op in ops], bool)
    begin = float(times.start[shown][computes if computes.any() else slice(None)].min(initial=np.inf))
    start, end = times.start[shown], times.end[shown]
    busy: dict[Lane, float] = {}
    for op, took in zip(ops, ((end - start) / every).tolist(), strict=True):
        busy[op.device, op.lane] = busy.get((op.device, op.lane), 0.0) + took
    device = np.array([op.device for op in ops], np.int64)
    holds, frees = np.array([op.holds for op in ops]), np.array([op.frees for op in ops])
    late = np.array([op.kind is Kind.OPTIMIZE and bool(plan.graph.before(op)) for op in ops], bool)
    row_of, place = {op.key: row for row, op in enumerate(ops)}, np.full(count, -1)
    for (_, lane), keys in plan.orders.items() if holds.any() else ():
        if lane == COMPUTE:
            place[[row_of[key] for key in keys]] = np.arange(len(keys))
    peak: dict[int, float] = {}
    exposed = np.zeros(count)
    for one in plan.graph.devices:
        mine = np.flatnonzero(device == one)
        peak[one] = _peak(times, mine, holds, frees, late, place, shown)
        works, moves = mine[computes[mine]], mine[~computes[mine]]
        order = np.argsort(times.start[:, works], axis=None)
        starts, ends = times.start[:, works].ravel()[order], times.end[:, works].ravel()[order]
        exposed[moves] = (
            end[moves] - start[moves] - (_worked(end[moves], starts, ends) - _worked(start[moves], starts, ends))
        )
    blame = times.blame[shown]
    return Timeline(
        plan,
        cost,
        times.ready[shown] - begin,
        times.launch[shown] - begin,
        start - begin,
        end - begin,
        times.wait[shown],
        np.where(blame < 0, blame, blame % max(count, 1)),
        seconds,
        busy,
        peak,
        {op.key: max(0.0, float(exposed[row] / every[row])) for row, op in enumerate(ops) if op.kind.moves},
    )


def _worked(moments: Doubles, starts: Doubles, ends: Doubles) -> Doubles:
    """Seconds of these consecutive intervals that lie before each moment."""
    done = np.concatenate([[0.0], np.cumsum(ends - starts)])
    at = np.searchsorted(starts, moments, side="right")
    over = np.where(at > 0, np.maximum(0.0, ends[at - 1] - moments), 0.0) if len(ends) else 0.0
    return np.asarray(done[at] - over)


def _peak(
    times: StepTimes,
    mine: Integers,
    holds: Doubles,
    frees: Doubles,
    late: NDArray[np.bool_],
    place: Integers,
    shown: int,
) -> float:
    """The most bytes held from the shown step's first launch on; at equal times, memory is freed first.

    late    frees memory that the previous step has taken: nothing in the first step
    place   in the order of the compute lane, where some Ops may take no time; -1: it communicates
    """
    moment = np.concatenate([times.launch[:, mine].ravel(), times.end[:, mine].ravel()])
    steps, count = times.launch.shape
    change = np.concatenate([np.tile(holds[mine], steps), -frees[mine] * ~late[mine], np.tile(-frees[mine], steps - 1)])
    turn = 2 * (np.arange(steps)[:, None] * count + place[mine])
    moves = place[mine] < 0
    turns = np.concatenate([np.where(moves, 2 * steps * count, turn).ravel(), np.where(moves, -1, turn + 1).ravel()])
    order = np.lexsort((turns, moment))
    held = np.cumsum(change[order])
    shows = moment[order] >= times.launch[shown][mine].min(initial=np.inf)
    return float(held[shows].max(initial=0.0))
