r"""Engine `one_shot`: all_reduce for small sizes; each rank gathers all contributions and adds them itself.

Sums made at an owner and copied from there cross the network twice. If only latency matters, once is enough, though
more bytes move: every rank gets everything, and adds it in the same order as all others do.

        two shots                            one shot
        0 ──▶ 1 ◀── 2    then back           0 ◀─▶ 1 ◀─▶ 2      each holds 0, 1, 2 and makes the sum 0 + 1 + 2

On a grid of levels (symmetry/levels.py), the lines of one level after another do the same, so that a rank receives only
as much as its lines have ranks, and still nothing crosses the network twice:

        level 0   0 ─ 1   2 ─ 3     both make 0 + 1, both make 2 + 3
        level 1   0 ─ 2   1 ─ 3     all make (0 + 1) + (2 + 3)

If bandwidth begins to matter, some levels take two shots, a reduce_scatter before and an all_gather after the others,
which then move only a share. One part of the buffer per level begins with that level, so that all wires are in use.

Every rank ends with the same value, hence the same bits; Swing and Trivance, in their forms for small sizes, add in a
different order at each rank. This is the direct all_reduce of libraries ("one-shot", for example in TensorRT-LLM), over
networks in which ranks forward; on grids it is recursive multiplying (Thakur et al., 2005).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines import greedy
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.hierarchy.lines import Wires, wires_of
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.groups import expand
from syntony.synth.symmetry.levels import LevelsError, levels_of
from syntony.topologies.topology import Topology

ENGINE = "one_shot"
MOST_TRANSFERS = 1 << 18
"""Everything to everybody takes n (n - 1) transfers; beyond this many, the search is not worth its time."""

Integers = NDArray[np.signedinteger]


def run(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    """The engine; see the module docstring. Raises EngineError for other collectives or too many transfers."""
    if budget.steps is not None or budget.rounds is not None:
        raise EngineError("engine one_shot takes no --steps or --rounds; use --engine sccl")
    if collective.kind != "all_reduce":
        raise EngineError(f"engine one_shot finds all_reduce, not {collective.kind}; use --engine auto")
    best: tuple[float, Schedule] | None = None
    refused: EngineError | None = None
    for grid in _grids(topology, collective):
        if best and not budget.left():
            break
        try:
            for schedule in _Grid(topology, collective, grid, size, budget).schedules():
                seconds = simulate(schedule, size).seconds
                if best is None or seconds < best[0]:
                    best = seconds, schedule
        except EngineError as error:
            refused = refused or error
    if best:
        bounds = bounds_of(topology, best[1].collective, budget.for_bounds())
        return replace(best[1], bounds=bounds)
    raise refused or EngineError(
        f"engine one_shot: {collective.ranks} ranks without levels take more than {MOST_TRANSFERS} transfers; "
        "use --engine forest"
    )


def _grids(topology: Topology, collective: Collective) -> list[Integers]:
    """Grids of the ranks whose lines gather one axis after another: the levels, if any; one line of all ranks."""
    ranks = collective.ranks
    grids: list[Integers] = []
    with suppress(LevelsError):
        levels = levels_of(topology, collective)
        grids = [levels.grid] if len(levels) == 2 else [levels.grid, levels.joined().grid]
    grids.append(np.arange(ranks))
    return [grid for grid in grids if ranks * sum(length - 1 for length in grid.shape) <= MOST_TRANSFERS // grid.ndim]


@dataclass(frozen=True, eq=False)
class _Line:
    """A line of the grid: its ranks, and schedules on its own wires, whose links are numbered by `links`."""

    ranks: list[int]
    links: Integers
    gather: Schedule
    scatter: Schedule | None

    def hops(self, schedule: Schedule) -> Iterator[Transfer]:
        """The schedule's transfers, with the ranks and links of the whole; values keep its numbers."""
        for row in schedule.transfers.rows():
            route = tuple(self.links[list(row.route)].tolist())
            yield replace(row, src=self.ranks[row.src], dst=self.ranks[row.dst], route=route)


class _Grid:
    """The ranks as a grid, with the lines of every axis."""

    def __init__(self, topology: Topology, collective: Collective, grid: Integers, size: int, budget: Budget) -> None:
        """Raises EngineError if the ranks of a line are not connected, or time runs out."""
        self._topology, self._collective, self._grid = topology, collective, grid
        self._size, self._budget = size, budget
        self._known: dict[object, tuple[Schedule, Schedule | None]] = {}
        self._axes = [[self._line(ranks) for ranks in self._lines(axis)] for axis in range(grid.ndim)]

    def schedules(self) -> Iterator[Schedule]:
        """All axes in one shot, then one axis in two shots, then two, .., as long as there is time."""
        for twice in range(self._grid.ndim):
            if not twice or self._budget.left():
                yield self._schedule(twice)

    def _lines(self, axis: int) -> Integers:
        return np.moveaxis(self._grid, axis, -1).reshape(-1, self._grid.shape[axis])

    def _line(self, ranks: Integers) -> _Line:
        """A line with its schedules; only one of several lines with equal wires is searched."""
        members, alone = np.asarray(self._collective.members), self._grid.ndim == 1
        if alone:
            wires = Wires(self._topology, np.arange(len(self._topology.links)))
        else:
            wires = wires_of(self._topology, members[ranks])
        own = wires.topology
        ends = tuple((link.src, link.dst, link.alpha, link.bandwidth) for link in own.links)
        look = (tuple(node.kind for node in own.nodes), ends)
        if look not in self._known:
            part = self._size // self._grid.ndim
            gather = Collective.make("all_gather", members=members.tolist() if alone else range(len(ranks)))
            once = expand(greedy.run(own, gather, part * len(ranks), self._budget))
            scatter = replace(gather, kind="reduce_scatter")
            self._known[look] = once, None if alone else expand(greedy.run(own, scatter, part, self._budget))
        return _Line(ranks.tolist(), wires.links, *self._known[look])

    def _schedule(self, twice: int) -> Schedule:
        """The schedule in which every part takes the first `twice` of its axes in two shots."""
        axes, shape = self._grid.ndim, self._grid.shape
        orders = [tuple((first + turn) % axes for turn in range(axes)) for first in range(axes)]
        cuts = [
            (order, piece) for order in orders for piece in product(*(range(shape[axis]) for axis in order[:twice]))
        ]
        weights = [prod(shape) // prod(shape[axis] for axis in order[:twice]) for order, _ in cuts]
        weight = np.outer(self._collective.chunks.weight, np.asarray(weights) // np.gcd.reduce(weights)).reshape(-1)
        cut = replace(self._collective, chunks=ChunkTable(np.zeros(len(weight), np.int32), weight))
        builder = ValueBuilder()
        rows: list[Transfer] = []
        for chunk in range(len(weight)):
            order, piece = cuts[chunk % len(cuts)]
            rows += _Part(builder, chunk, cut.ranks).moved([self._axes[axis] for axis in order], piece)
        rows.sort(key=lambda row: row.step)
        return Schedule(self._topology, cut, builder.build(), Transfers.of(rows), engine=ENGINE)


class _Part:
    """The state of a chunk: the value that each active rank holds; ranks that are done are not in `held`."""

    def __init__(self, builder: ValueBuilder, chunk: int, ranks: int) -> None:
        self._builder, self._step = builder, 0
        self._rows: list[Transfer] = []
        self._held = {rank: builder.contribution(chunk, rank) for rank in range(ranks)}

    def moved(self, axes: list[list[_Line]], piece: tuple[int, ...]) -> list[Transfer]:
        """Its transfers; as many of the first axes as `piece` has entries take two shots."""
        for lines, place in zip(axes, piece, strict=False):
            self._scatter(lines, place)
        for lines in axes[len(piece) :]:
            self._gather(lines)
        for lines, place in reversed(list(zip(axes, piece, strict=False))):
            self._spread(lines, place)
        return self._rows

    def _scatter(self, lines: list[_Line], place: int) -> None:
        """Each line sums its values at the rank at `place`."""
        begun, self._held = self._held, {}
        for line in lines:
            if line.ranks[0] in begun:
                assert line.scatter is not None
                values = line.scatter.values
                own = np.flatnonzero(values.chunk == place).tolist()
                named: dict[int, int] = {}
                for value in own:
                    rank = int(values.rank[value])
                    terms = [named[operand] for operand in values.operands(value)]
                    named[value] = begun[line.ranks[rank]] if rank >= 0 else self._builder.sum(terms)
                for row in line.hops(line.scatter):
                    if row.value in named:
                        self._add(row, named[row.value], named[row.result])
                self._held[line.ranks[place]] = named[own[-1]]
        self._step += max(line.scatter.steps for line in lines if line.scatter)

    def _gather(self, lines: list[_Line]) -> None:
        """All ranks of a line get all its values, and add them as soon as the last one arrives."""
        for line in lines:
            if line.ranks[0] in self._held and len(line.ranks) > 1:
                values = [self._held[rank] for rank in line.ranks]
                total = self._builder.sum(values)
                last = dict.fromkeys(line.ranks, 0)
                for row in line.hops(line.gather):
                    self._add(row, values[row.value], values[row.value])
                    last[row.dst] = max(last[row.dst], row.step)
                for rank, step in last.items():
                    self._add(Transfer(0, 0, rank, rank, step, ()), self._held[rank], total)
                    self._held[rank] = total
        self._step += max(line.gather.steps for line in lines)

    def _spread(self, lines: list[_Line], place: int) -> None:
        """The ranks of a line get the value of the one at `place`."""
        begun = dict(self._held)
        for line in lines:
            value = begun.get(line.ranks[place])
            if value is not None:
                for row in line.hops(line.gather):
                    if row.value == place:
                        self._add(row, value, value)
                self._held |= dict.fromkeys(line.ranks, value)
        self._step += max(line.gather.steps for line in lines)

    def _add(self, row: Transfer, value: int, result: int) -> None:
        self._rows.append(replace(row, value=value, result=result, step=row.step + self._step))
