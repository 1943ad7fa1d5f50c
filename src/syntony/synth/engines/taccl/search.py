"""Engine `taccl`: schedules guided by a communication sketch, after Shah et al., TACCL (NSDI'23).

    sketch + topology ──▶ logical network ──▶ 1 routing ──▶ 2 ordering ──▶ 3 times ──▶ Schedule
      (sketch.py)           (logical.py)      (routing.py)        (ordering.py)

The whole problem is too large, so it is solved in stages, each for the given size, latencies included. A sketch by a
person makes the first stage small: which ranks send to other boxes, whose chunks they send, and what is symmetric.
Without a sketch, one is derived from the topology (`default_sketch`).

Every stage starts from a known solution, so the time may end at any moment. The best schedule so far, by simulation, is
reported as soon as it is found, and returned in the end; its proof says how far it is above the lower bound of stage 1
for the sketch. Sums are made in reverse (symmetry/reversal.py), where a sketch's senders receive. all_reduce is both
halves, one after another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from syntony.synth.bounds.distance import latency
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines.engine import Budget, EngineError, bounded
from syntony.synth.engines.taccl.logical import Logical
from syntony.synth.engines.taccl.ordering import Ordering, listed, timed
from syntony.synth.engines.taccl.routing import route
from syntony.synth.engines.taccl.sketch import Sketch, default_sketch
from syntony.synth.engines.taccl.sketch_file import read_sketch
from syntony.synth.engines.taccl.task import Task
from syntony.synth.engines.taccl.trees import grown, relaxed_time
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.reversal import in_owned_chunks, summed, summed_and_spread
from syntony.topologies.topology import Topology

ENGINE = "taccl"
UNITS = 100_000
"""The time of grown trees is divided into this many units, in which everything is counted."""
ROUTING = 0.6
"""Of the time, for stage 1; the rest is for stage 3."""


def run(topology: Topology, collective: Collective, size: int, budget: Budget, argument: str = "") -> Schedule:
    """The engine; `argument` is the path of a sketch, ours (TOML) or TACCL's (JSON).

    Raises EngineError for steps or rounds and for networks too large, SketchError for a sketch that does not fit,
    FileError for a file that is none. Blocks are cut as the sketch says, and once more where ranks have several routes.
    """
    if budget.steps is not None or budget.rounds is not None:
        raise EngineError("engine taccl minimizes time and takes no --steps or --rounds; use --engine sccl")
    sketch = read_sketch(argument, collective.ranks) if argument else default_sketch(topology, collective.members)
    size = size if sketch.size is None else sketch.size
    latency(Network(topology, collective))  # Raises where a rank cannot be reached.
    bounds = bounds_of(topology, collective, budget.for_bounds())

    def tell(made: Callable[[], Schedule]) -> None:
        if budget.better is not None:
            budget.better(bounded(made(), ENGINE, bounds))

    if collective.kind == "all_reduce":
        _, gather = in_owned_chunks(collective)
        up = _spread(topology.reversed(), gather, sketch, size, budget.left() / 2)

        def both(down: Schedule) -> Schedule:
            weight = down.collective.chunks.weight
            whole = replace(collective, chunks=ChunkTable(np.zeros_like(weight), weight))
            return summed_and_spread(up.schedule, down, whole)

        down = _spread(topology, gather, sketch, size, budget.left(), lambda half: tell(partial(both, half)))
        schedule, halves = both(down.schedule), [up, down]
    elif collective.combining:
        way, spread = topology.reversed(), collective.dual()
        dual = _spread(way, spread, sketch, size, budget.left(), lambda half: tell(partial(summed, half, topology)))
        schedule, halves = summed(dual.schedule, topology), [dual]
    else:
        found = _spread(topology, collective, sketch, size, budget.left(), lambda whole: tell(lambda: whole))
        schedule, halves = found.schedule, [found]
    return replace(bounded(schedule, ENGINE, bounds), proof=_proof(sketch, size, halves))


@dataclass(frozen=True, eq=False)
class _Found:
    """A schedule of one half.

    seconds  that its transfers take, laid out over time as planned
    least    no schedule of the sketch takes less, as far as proven; 0: nothing is proven
    unit     the unit of time that both were counted in
    """

    schedule: Schedule
    seconds: float
    least: float
    unit: float


def _proof(sketch: Sketch, size: int, halves: list[_Found]) -> str:
    seconds, least = sum(half.seconds for half in halves), sum(half.least for half in halves)
    if not seconds or not least:
        return ""
    counted = f"at {size} bytes, in units of {max(half.unit for half in halves):.2g} s"
    if seconds <= least * (1 + 1e-9):
        return f"no schedule that {sketch.name} allows takes less time ({counted})"
    return f"at most {seconds / least - 1:.1%} above any schedule that {sketch.name} allows ({counted})"


def _spread(
    topology: Topology,
    collective: Collective,
    sketch: Sketch,
    size: int,
    timeout: float,
    tell: Callable[[Schedule], None] = lambda _: None,
) -> _Found:
    """A collective without sums. `tell` gets every new best schedule."""
    budget = Budget(timeout)
    task = Task.of(Logical.of(Network(topology, collective), sketch, size), size)
    start = grown(task)
    unit = max(relaxed_time(task, start) / UNITS, 1e-15)
    found: list[tuple[float, int, Schedule]] = []

    def keep(ordering: Ordering, begin: list[int]) -> None:
        schedule = _schedule(task, ordering, begin)
        tried = simulate(schedule, size).seconds, ordering.makespan(begin), schedule
        if all(tried[:2] < known[:2] for known in found):
            tell(schedule)
        found.append(tried)

    ordering = Ordering.of(task, start, unit)
    begin = listed(ordering)
    keep(ordering, begin)
    routing = route(task, start, unit, ROUTING * budget.left())
    floor = float(
        size * bounds_of(topology, collective, budget.for_bounds()).throughput.seconds_per_byte
    )  # of everything, sketch or not
    least = int(max(floor, routing.least) / unit * (1 + 1e-12))

    if not np.array_equal(start, routing.chosen):
        routed = Ordering.of(task, routing.chosen, unit)
        first = listed(routed)
        keep(routed, first)
        if routed.makespan(first) < ordering.makespan(begin):
            ordering, begin = routed, first
    better = timed(ordering, begin, least, budget.left())
    if better != begin:
        keep(ordering, better)
    _, makespan, schedule = min(found, key=lambda one: one[:2])
    return _Found(schedule, makespan * unit, least * unit, unit)


def _schedule(task: Task, ordering: Ordering, start: list[int]) -> Schedule:
    """The transfers in their order, stripe by stripe."""
    logical, stripes = task.logical, task.logical.stripes
    table = task.collective.chunks
    cut = replace(task.collective, chunks=ChunkTable(np.repeat(table.block, stripes), np.repeat(table.weight, stripes)))
    arrived: dict[tuple[int, int], int] = {}
    lane: defaultdict[int, int] = defaultdict(int)
    rows = []
    for number in sorted(range(len(start)), key=start.__getitem__):
        chunk, edge = ordering.chunk[number], logical.edges[ordering.edge[number]]
        # One more than the arrival step of the chunk; transfers on one edge keep their order.
        step = max(arrived.get((chunk, edge.src), 0), lane[ordering.edge[number]])
        arrived[chunk, edge.dst] = step + 1
        lane[ordering.edge[number]] = step
        for stripe in range(stripes):
            value, links = chunk * stripes + stripe, edge.routes[stripe % len(edge.routes)].links
            rows.append(Transfer(value, value, edge.src, edge.dst, step, links))
    rows.sort(key=lambda row: row.step)
    values = ValueBuilder.of_chunks(cut).build()
    return Schedule(logical.network.topology, cut, values, Transfers.of(rows), engine=ENGINE)
