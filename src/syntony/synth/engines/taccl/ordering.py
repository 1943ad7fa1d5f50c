"""Stage 2, the order of transfers on each link, and stage 3, their exact times.

    link a  [c0][c3][c1]          stage 2: when links are free, of the chunks that are ready the one with the longest
    link b      [c0  ][c1  ]               remaining path goes first (Shah et al., TACCL, NSDI'23)
            ───────────────▶ time stage 3: CP-SAT moves the intervals to make the last arrival as early as possible

A transfer keeps every link of its edge busy from its start, for as long as its share takes; it arrives after the
slowest of them and the latency. TACCL's third stage also joins chunks into one message, to pay a link's latency once.
Here a link is not busy during the latency (topologies/topology.py), so the latencies of successive chunks overlap
anyway, and only times are left to decide.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony.synth.engines import cp_sat
from syntony.synth.engines.taccl.routing import WORKERS
from syntony.synth.engines.taccl.task import Task

MOST_TRANSFERS = 3000
"""With more transfers, the order of stage 2 is kept."""


@dataclass(frozen=True, eq=False)
class Ordering:
    """Transfers in whole units of time.

    chunk, edge  of each
    parent       per transfer, the one that brings its chunk to its source; -1 at the chunk's home
    latency      until it has arrived
    busy         per transfer, its links, and how long each is held
    after        pairs (earlier, later): the later one does not start before the earlier
    """

    chunk: tuple[int, ...]
    edge: tuple[int, ...]
    parent: tuple[int, ...]
    latency: tuple[int, ...]
    busy: tuple[dict[int, int], ...]
    after: tuple[tuple[int, int], ...]

    @staticmethod
    def of(task: Task, chosen: NDArray[np.bool_], unit: float) -> Ordering:
        """The transfers of a routing."""
        src, dst = (ends.tolist() for ends in task.logical.ends)
        chunks, edges = (column.tolist() for column in np.nonzero(chosen))
        number = {(chunk, dst[edge]): i for i, (chunk, edge) in enumerate(zip(chunks, edges, strict=True))}
        parent = tuple(number.get((chunk, src[edge]), -1) for chunk, edge in zip(chunks, edges, strict=True))
        latency = tuple(int(np.ceil(task.latency[c, e] / unit)) for c, e in zip(chunks, edges, strict=True))
        busy = tuple(
            {
                link: max(1, int(np.ceil(task.bytes[chunk] * pace / unit)))
                for link, pace in zip(task.links[edge].tolist(), task.pace[edge].tolist(), strict=True)
                if pace
            }
            for chunk, edge in zip(chunks, edges, strict=True)
        )
        return Ordering(tuple(chunks), tuple(edges), parent, latency, busy, _own_first(task, chunks, edges))

    def makespan(self, start: list[int]) -> int:
        """When the last transfer has arrived."""
        return max((begin + latency for begin, latency in zip(start, self.latency, strict=True)), default=0)


def _own_first(task: Task, chunks: list[int], edges: list[int]) -> tuple[tuple[int, int], ...]:
    logical = task.logical
    if logical.sketch.between is None or not logical.sketch.between.own_first:
        return ()
    src, dst = logical.ends
    own: defaultdict[int, list[int]] = defaultdict(list)
    others: defaultdict[int, list[int]] = defaultdict(list)
    for number, (chunk, edge) in enumerate(zip(chunks, edges, strict=True)):
        if logical.box[src[edge]] != logical.box[dst[edge]]:
            (own if task.home[chunk] == src[edge] else others)[edge].append(number)
    return tuple((first, then) for edge, mine in own.items() for first in mine for then in others[edge])


def listed(ordering: Ordering) -> list[int]:
    """Stage 2: the start of every transfer."""
    count = len(ordering.chunk)
    children: defaultdict[int, list[int]] = defaultdict(list)
    for number, parent in enumerate(ordering.parent):
        children[parent].append(number)
    ahead = _ways_ahead(ordering, children)
    waits = [0] * count
    followers: defaultdict[int, list[int]] = defaultdict(list)
    for first, then in ordering.after:
        waits[then] += 1
        followers[first].append(then)
    free: defaultdict[int, int] = defaultdict(int)
    ready = [-1] * count  # since when the chunk is at the source
    start = [-1] * count
    heap: list[tuple[int, int, int]] = []

    def offer(number: int) -> None:
        if ready[number] >= 0 and not waits[number]:
            begin = max([ready[number], *(free[link] for link in ordering.busy[number])])
            heapq.heappush(heap, (begin, -ahead[number], number))

    for number in children[-1]:
        ready[number] = 0
        offer(number)
    while heap:
        begin, _, number = heapq.heappop(heap)
        if max([begin, *(free[link] for link in ordering.busy[number])]) > begin:
            offer(number)
            continue
        start[number] = begin
        for link, held in ordering.busy[number].items():
            free[link] = begin + held
        for child in children[number]:
            ready[child] = begin + ordering.latency[number]
            offer(child)
        for follower in followers[number]:
            waits[follower] -= 1
            ready[follower] = max(ready[follower], begin) if ready[follower] >= 0 else -1
            offer(follower)
    return start


def _ways_ahead(ordering: Ordering, children: dict[int, list[int]]) -> list[int]:
    """Per transfer, the longest time from its start until the last arrival that waits for it."""
    order = list(children.get(-1, ()))
    for number in order:  # grows
        order += children.get(number, ())
    ahead = list(ordering.latency)
    for number in reversed(order):
        ahead[number] += max((ahead[child] for child in children.get(number, ())), default=0)
    return ahead


def timed(ordering: Ordering, start: list[int], least: int, timeout: float) -> list[int]:
    """Stage 3: the best starts found in `timeout` seconds, from `start`; no makespan is below `least`."""
    best = ordering.makespan(start)
    if best <= least or len(start) > MOST_TRANSFERS or timeout <= 0:
        return start
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    last = model.new_int_var(least, best, "last")
    begin = [model.new_int_var(0, best, "") for _ in start]
    held: defaultdict[int, list[Any]] = defaultdict(list)
    for number, variable in enumerate(begin):
        model.add_hint(variable, start[number])
        model.add(last >= variable + ordering.latency[number])
        if ordering.parent[number] >= 0:
            model.add(variable >= begin[ordering.parent[number]] + ordering.latency[ordering.parent[number]])
        for link, length in ordering.busy[number].items():
            held[link].append(model.new_fixed_size_interval_var(variable, length, ""))
    for first, then in ordering.after:
        model.add(begin[then] >= begin[first])
    for intervals in held.values():
        if len(intervals) > 1:
            model.add_no_overlap(intervals)
    model.minimize(last)
    model.add_hint(last, best)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = WORKERS
    if cp_sat.solve(solver, model, timeout) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return start
    return [int(solver.value(variable)) for variable in begin]
