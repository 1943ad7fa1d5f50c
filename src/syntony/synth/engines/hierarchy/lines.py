r"""Schedules of single lines of a level: the network of a line, and a schedule of a collective on it.

            line (0 1 2)                     the same small network, solved once,
     sw0   /   │   \                         and its schedule mapped to every line
          0    1    2         3  4  5        of equal shape, by renaming links

A line's network is that of engines/wires.py.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from syntony.synth.engines import greedy
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.flow import search as flow
from syntony.synth.engines.forest import search as forest
from syntony.synth.engines.hierarchy.compositions import Solver
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.routes import Route, routes_of
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.symmetry.groups import expand
from syntony.topologies.topology import Topology


class LineSolver:
    """Solves lines, each distinct shape once."""

    def __init__(self, kind: str, size: int, budget: Budget) -> None:
        self._kind, self._size, self._budget = kind, size, budget.unheard()
        self._solved: dict[object, Schedule] = {}

    def schedule(self, wires: Topology, solver: Solver, root: int) -> Schedule:
        """The schedule of the line's collective, with all transfers listed. Raises EngineError."""
        speeds = tuple(dict.fromkeys((link.alpha, link.bandwidth) for link in wires.links))  # in the order of numbers
        look = (tuple(node.kind for node in wires.nodes), *(ends.tobytes() for ends in wires.ends))
        key = (solver, root, look, wires.speeds.tobytes(), speeds)
        if key not in self._solved:
            self._solved[key] = expand(self._solve(wires, solver, root))
        return self._solved[key]

    def _solve(self, wires: Topology, solver: Solver, root: int) -> Schedule:
        collective = Collective.make(self._kind, wires.ranks, root=root)
        if self._kind == "all_gather" and solver == "ring":
            return _ring(wires, collective)
        if self._kind == "all_gather" and solver == "doubling":
            return _doubling(wires, collective)
        engine = forest if self._kind in ("all_gather", "broadcast") else flow
        with suppress(EngineError):
            schedule: Schedule = engine.run(wires, collective, self._size, self._budget)
            return schedule
        return greedy.run(wires, collective, self._size, self._budget)


def _ring(wires: Topology, collective: Collective) -> Schedule:
    """Half of every block goes round in each direction; with two ranks, the halves go side by side."""
    ranks, direct = collective.ranks, _Direct(wires, collective)
    cut = replace(collective, chunks=ChunkTable(np.repeat(np.arange(ranks), 2), np.ones(2 * ranks, np.int32)))
    rows = [
        direct.hop(2 * owner + half, (owner + way * step) % ranks, (owner + way * (step + 1)) % ranks, step)
        for step in range(ranks - 1)
        for owner in range(ranks)
        for half, way in enumerate((1, -1))
    ]
    return _of_copies(wires, cut, rows)


def _doubling(wires: Topology, collective: Collective) -> Schedule:
    """In step s partners that differ in bit s of their numbers exchange all that they hold."""
    ranks, direct = collective.ranks, _Direct(wires, collective)
    if ranks & (ranks - 1):
        raise EngineError(f"engine hierarchy: doubling distances need a power of two, and a level has {ranks} ranks")
    rows = [
        direct.hop(owner, holder, holder ^ (1 << step), step)
        for step in range(ranks.bit_length() - 1)
        for owner in range(ranks)
        for holder in range(ranks)
        if holder >> step == owner >> step
    ]
    return _of_copies(wires, collective, rows)


class _Direct:
    """Messages from rank to rank of a line, chunk after chunk over the routes between them in turn."""

    def __init__(self, wires: Topology, collective: Collective) -> None:
        self._routes: dict[tuple[int, int], list[Route]] = {}
        for route in routes_of(Network(wires, collective)).routes:
            self._routes.setdefault((route.src, route.dst), []).append(route)

    def hop(self, chunk: int, src: int, dst: int, step: int) -> Transfer:
        """One message. Raises EngineError if other ranks lie between the two."""
        routes = self._routes.get((src, dst))
        if routes is None:
            raise EngineError(f"engine hierarchy: other ranks lie between ranks {src} and {dst} of a level's line")
        return Transfer(chunk, chunk, src, dst, step, routes[chunk % len(routes)].links)


def _of_copies(wires: Topology, collective: Collective, rows: list[Transfer]) -> Schedule:
    return Schedule(wires, collective, ValueBuilder.of_chunks(collective).build(), Transfers.of(rows))
