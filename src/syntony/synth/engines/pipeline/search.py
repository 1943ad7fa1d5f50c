"""Engine `pipeline`: shallow trees in slices, ordered by urgency; for medium sizes.

Large messages need trees that use all links (engine forest), small ones need shallow trees. In between, trees that
negotiate for links are nearly as good as the former and nearly as shallow as the latter; some numbers of them are
tried, with more and less patience (pipeline/negotiation.py). Then chunks are cut into slices, and all transfers are
ordered by urgency (pipeline/list_scheduling.py): the slices of an all_reduce follow each other, so that links used for
sums and links used for copies are busy at the same time:

        sums     [ slice 0 ][ slice 1 ][ slice 2 ]
        copies              [ slice 0 ][ slice 1 ][ slice 2 ]

On meshes, an all_reduce may sum each byte at several ranks: plans in which partial sums cross follow a timetable
(pipeline/meshes.py). Elsewhere the problem is that of PipeComm (PKU, 2026), which packs trees into a reservation table
whose period repeats for every slice. The trees of engines forest and greedy are also cut, ordered and simulated, so the
result is never slower than theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np

from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines import greedy
from syntony.synth.engines.engine import Budget, EngineError, OutOfTimeError, bounded
from syntony.synth.engines.forest import search as forest
from syntony.synth.engines.pipeline.meshes import Mesh
from syntony.synth.engines.pipeline.negotiation import Negotiation, Tree
from syntony.synth.engines.pipeline.slicing import BEYOND, Dull, glanced, streamed
from syntony.synth.model.bound import Bounds
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.simulation.long_messages import estimate
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.topologies.topology import Topology

ENGINE = "pipeline"

GLANCED = 3
"""The most promising forests of each number of trees that get a first, short trial."""
GLANCE = 20_000
"""Most transfers of a schedule in the first trial, which also leaves out dull orders (slicing.py)."""
FINALISTS = 3
"""The best forests of the first trials that are then cut in all ways."""
NEAR = 1.05
"""Cuts that seem to take at most this many times as long as the best result are simulated more exactly."""
JUDGED = 1 << 16
"""Messages of the more exact simulation, about; they are cut as the executor cuts them."""
GAIN = 0.99
"""A schedule is reported before the end if it takes at most this part of the time of the last one that was."""


def run(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    """The engine; see the module docstring. Raises EngineError for collectives without trees."""
    if budget.steps is not None or budget.rounds is not None:
        raise EngineError("engine pipeline takes no --steps or --rounds; use --engine sccl")
    if collective.kind in ("all_to_all", "gather", "scatter"):
        raise EngineError(f"engine pipeline packs trees, which {collective.kind} does not need; use --engine flow")
    best: tuple[float, Schedule] | None = None
    reported = np.inf
    bounds = bounds_of(topology, collective, budget.for_bounds())
    for seconds, schedule in _candidates(topology, collective, size, bounds, budget):
        if budget.allows(schedule) and (best is None or seconds < best[0]):
            best = seconds, bounded(schedule, ENGINE, bounds)
            if budget.better is not None and seconds <= GAIN * reported:
                reported = seconds
                budget.better(best[1])
        if not budget.left():
            break
    if best is None:
        raise OutOfTimeError(f"engine pipeline found no schedule in {budget.timeout:g} s; give more with --timeout")
    return best[1]


def _candidates(
    topology: Topology, collective: Collective, size: int, bounds: Bounds, budget: Budget
) -> Iterator[tuple[float, Schedule]]:
    """With simulated seconds: a quick try of each forest, then the results of the other engines, and then all cuts of
    the best."""
    uncut: list[tuple[Schedule, int]] = []
    times: list[tuple[float, int]] = []
    dull = Dull()

    def glances(schedule: Schedule, stages: int) -> Iterator[tuple[float, Schedule]]:
        uncut.append((schedule, stages))
        tried: dict[str, float] = {}
        for order, made in glanced(schedule, size, stages, GLANCE).items():
            if order not in dull:
                glance = made()
                tried[order] = simulate(glance, size).seconds
                times.append((tried[order], len(uncut) - 1))
                yield tried[order], glance
        dull.hear(tried)

    network, per_byte = Network(topology, collective), float(bounds.throughput.seconds_per_byte)
    mesh = Mesh.of(network)
    for schedule in mesh.schedules(size, per_byte, budget) if mesh else ():
        yield simulate(schedule, size).seconds, schedule
    negotiation = Negotiation.of(network, size, per_byte, budget)
    for forests in negotiation.forests() if negotiation else ():
        for trees in forests[:GLANCED]:
            stages = len(trees) if collective.rooted else len(trees) // collective.ranks
            yield from glances(_schedule(topology, collective, trees), stages)
    for forests in negotiation.of_many_trees() if negotiation else ():
        for trees in forests[:GLANCED]:
            schedule = _schedule(topology, collective, trees)
            uncut.append((schedule, len(trees) // collective.ranks))
            seconds = estimate(schedule, size, JUDGED).seconds
            times.append((seconds, len(uncut) - 1))
            yield seconds, schedule
    for engine in (greedy, forest):
        with suppress(EngineError):
            schedule = engine.run(topology, collective, size, budget.unheard())
            yield simulate(schedule, size).seconds, schedule
            yield from glances(schedule, 1)
    finalists = list(dict.fromkeys(number for _, number in sorted(times)))[:FINALISTS]
    least = min(times, default=(np.inf, 0))[0]
    for number in finalists:
        fewest, best = np.inf, 1
        for slices, orders in streamed(uncut[number][0], size, uncut[number][1]):
            if slices > BEYOND * best:
                continue
            for made in orders.values():
                cut = made()
                seconds = simulate(cut, size).seconds
                if seconds <= NEAR * least:
                    seconds = estimate(cut, size, JUDGED).seconds
                    least = min(least, seconds)
                if seconds < fewest:
                    fewest, best = seconds, slices
                yield seconds, cut


def _schedule(topology: Topology, collective: Collective, trees: list[Tree]) -> Schedule:
    """Chunk i takes tree i."""
    rooted = collective.kind in ("all_gather", "reduce_scatter")
    block = [tree.root if rooted else 0 for tree in trees]
    cut = replace(collective, chunks=ChunkTable(np.asarray(block), np.ones(len(block), np.int64)))
    values = ValueBuilder()
    start = 1 + max((time for tree in trees for _, time in tree.up), default=-1)
    transfers: list[Transfer] = []
    for chunk, tree in enumerate(trees):
        held = [values.contribution(chunk, rank) for rank in range(collective.ranks)] if collective.combining else []
        for route, time in sorted(tree.up, key=lambda hop: -hop[1]):
            moved = held[route.src]
            held[route.dst] = values.sum((held[route.dst], moved))
            transfers.append(Transfer(moved, held[route.dst], route.src, route.dst, start - 1 - time, route.links))
        whole = held[tree.root] if held else values.contribution(chunk, tree.root)
        transfers += [
            Transfer(whole, whole, route.src, route.dst, start + time, route.links) for route, time in tree.down
        ]
    return Schedule(topology, cut, values.build(), Transfers.of(transfers), engine=ENGINE)
