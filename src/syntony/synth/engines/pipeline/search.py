"""Engine `pipeline`: shallow trees in slices, ordered by urgency; for middle sizes.

Large messages need trees that use all links (engine forest), small ones need shallow trees. In between, R trees of
equal weight are packed one by one into a table of P slots per link (pipeline/trees.py), each as shallow as the free
slots allow; both halves of an all_reduce share the table. Then chunks are cut into C slices, and all transfers are
ordered by urgency (pipeline/list_scheduling.py):

        link 0   [ sums of all slices, first those that must go far ]  [ .. and the last hops of what spreads ]

PipeComm (PKU, 2026): incremental packing against a reservation table, whose period repeats for every slice. Its C =
sqrt(D (S - P) beta / (alpha R P)) balances the slots that a slice waits against an alpha per slot. In the
simulator alphas overlap, so some values of R and C are simulated, and the fastest at `size` is returned. The trees of
engines forest and greedy are cut, ordered and simulated, too, so the result is never slower than theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from math import ceil

import numpy as np

from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines import greedy
from syntony.synth.engines.engine import Budget, EngineError, OutOfTimeError
from syntony.synth.engines.forest import search as forest
from syntony.synth.engines.pipeline.slicing import ordered
from syntony.synth.engines.pipeline.trees import Grower, Hop, ReservationTable, Tree, pack
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.routes import routes_of
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.topologies.topology import Topology

ENGINE = "pipeline"

MOST_ROOTS = 8
"""Number of roots that are tried for a tree: those nearest to all ranks."""


def run(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    """The engine; see the top of the file. Raises EngineError for what has no trees."""
    if budget.steps is not None or budget.rounds is not None:
        raise EngineError("engine pipeline takes no --steps or --rounds; use --engine sccl")
    if collective.kind in ("all_to_all", "gather", "scatter"):
        raise EngineError(f"engine pipeline packs trees, which {collective.kind} does not need; use --engine flow")
    best: tuple[float, Schedule] | None = None
    for uncut in _uncut(topology, collective, size, budget):
        for schedule in (uncut, *ordered(uncut, size)):
            if best is not None and not budget.left():
                break
            seconds = simulate(schedule, size).seconds
            if best is None or seconds < best[0]:
                best = seconds, schedule
    if best is None:
        raise OutOfTimeError(f"engine pipeline found no schedule in {budget.timeout:g} s; give more with --timeout")
    return replace(
        best[1], engine=ENGINE, bounds=bounds_of(best[1].topology, best[1].collective, budget.for_bounds()), proof=""
    )


def _uncut(topology: Topology, collective: Collective, size: int, budget: Budget) -> Iterator[Schedule]:
    """Schedules of whole chunks."""
    for engine in (greedy, forest):
        with suppress(EngineError):
            yield engine.run(topology, collective, size, budget)
    if collective.ranks > 1 and len(set(np.bincount(collective.chunks.block, collective.chunks.weight).tolist())) == 1:
        for trees in _Packer(topology, collective, budget).forests():
            yield _schedule(topology, collective, trees)


class _Packer:
    """Packs trees for one collective."""

    def __init__(self, topology: Topology, collective: Collective, budget: Budget) -> None:
        self._collective, self._budget = collective, budget
        network = Network(topology, collective)
        self._rate = max((link.bandwidth for link in network.links), default=Fraction(1))
        self._hops = [
            Hop(route, tuple(round(self._rate / topology.links[link].bandwidth) for link in route.links))
            for route in routes_of(network).routes
        ]
        self._links = len(topology.links)
        reach = network.hops.max(axis=0) + network.hops.max(axis=1)
        self._central: list[int] = np.argsort(reach, kind="stable")[:MOST_ROOTS].tolist()
        self._per_byte = bounds_of(topology, collective, budget.for_bounds()).throughput.seconds_per_byte

    def forests(self) -> Iterator[list[Tree]]:
        """Trees, some numbers of them."""
        ranks = self._collective.ranks
        if self._collective.kind in ("all_gather", "reduce_scatter"):
            choices = [[[rank] for rank in range(ranks) for _ in range(each)] for each in (1, 2)]
        else:
            roots = self._central if self._collective.kind == "all_reduce" else [self._collective.root]
            choices = [[roots] * trees for trees in (8, 24)]
        for roots_of_trees in choices:
            trees = self._packed(roots_of_trees)
            if trees is not None:
                yield trees

    def _packed(self, choices: list[list[int]]) -> list[Tree] | None:
        """One tree per choice, in the least period that has room for them."""
        up, down = self._collective.combining, self._collective.kind not in ("reduce", "reduce_scatter")
        grower = Grower(self._hops, self._collective.ranks)
        least = max(1, ceil(self._per_byte * len(choices) * self._rate))
        for period in range(least, 4 * least + 2):
            if not self._budget.left():
                return None
            found = pack(grower, ReservationTable(period, self._links), choices, up, down)
            if found is not None:
                return found
        return None


def _schedule(topology: Topology, collective: Collective, trees: list[Tree]) -> Schedule:
    """Chunk i goes along tree i."""
    rooted = collective.kind in ("all_gather", "reduce_scatter")
    block = [tree.root if rooted else 0 for tree in trees]
    cut = replace(collective, chunks=ChunkTable(np.asarray(block), np.ones(len(block), np.int64)))
    values = ValueBuilder()
    start = 1 + max((time for tree in trees for _, time in tree.up), default=-1)
    transfers: list[Transfer] = []
    for chunk, tree in enumerate(trees):
        held = [values.contribution(chunk, rank) for rank in range(collective.ranks)] if collective.combining else []
        for hop, time in sorted(tree.up, key=lambda hop: -hop[1]):
            route, moved = hop.route, held[hop.route.src]
            held[route.dst] = values.sum((held[route.dst], moved))
            transfers.append(Transfer(moved, held[route.dst], route.src, route.dst, start - 1 - time, route.links))
        whole = held[tree.root] if held else values.contribution(chunk, tree.root)
        transfers += [
            Transfer(whole, whole, hop.route.src, hop.route.dst, start + time, hop.route.links)
            for hop, time in tree.down
        ]
    return Schedule(topology, cut, values.build(), Transfers.of(transfers), engine=ENGINE)
