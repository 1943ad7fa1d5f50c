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

from syntony.base.rows import in_order, pieces
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines import greedy
from syntony.synth.engines.engine import Budget, EngineError, bounded
from syntony.synth.engines.wires import Wires, wires_of
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.groups import expand
from syntony.synth.symmetry.levels import LevelsError, levels_of
from syntony.topologies.topology import Topology

ENGINE = "one_shot"
CLOSE = 1.01
"""A schedule within 1 % of the bounds ends the search."""
MOST_TRANSFERS = 1 << 18
"""Most transfers if everybody sends everything to everybody: n (n - 1). With more, the search is not worth its time."""
MOST_BESIDE = 1 << 14
"""The same limit on a grid, whose lines take fewer transfers."""

Integers = NDArray[np.signedinteger]


def run(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    """The engine; see the module docstring. Raises EngineError for other collectives or too many transfers."""
    if budget.steps is not None or budget.rounds is not None:
        raise EngineError("engine one_shot takes no --steps or --rounds; use --engine sccl")
    if collective.kind != "all_reduce":
        raise EngineError(f"engine one_shot finds all_reduce, not {collective.kind}; use --engine auto")
    bounds = bounds_of(topology, collective, budget.for_bounds())
    best: tuple[float, Schedule] | None = None
    refused: EngineError | None = None
    for grid in _grids(topology, collective):
        if best and (not budget.left() or best[0] <= CLOSE * bounds.seconds(size)):
            break
        try:
            for schedule in _Grid(topology, collective, grid, size, budget).schedules():
                seconds = simulate(schedule, size).seconds
                if best is None or seconds < best[0]:
                    best = seconds, bounded(schedule, ENGINE, bounds)
                    if budget.better is not None:
                        budget.better(best[1])
        except EngineError as error:
            refused = refused or error
    if best:
        return best[1]
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
        grids = [
            grid for grid in grids if ranks * sum(length - 1 for length in grid.shape) <= MOST_TRANSFERS // grid.ndim
        ]
    if ranks * (ranks - 1) <= (MOST_BESIDE if grids else MOST_TRANSFERS):
        grids.append(np.arange(ranks))
    return grids


@dataclass(frozen=True, eq=False)
class _Lines:
    """Lines of one axis of the grid with equal wires, and schedules of a single one, on its own wires.

    ranks    (lines, ranks of a line)
    links    (lines, links of a line): their numbers in the topology
    scatter  None if the grid has no other axis
    """

    ranks: Integers
    links: Integers
    gather: Schedule
    scatter: Schedule | None


class _Grid:
    """The ranks as a grid, with the lines of every axis."""

    def __init__(self, topology: Topology, collective: Collective, grid: Integers, size: int, budget: Budget) -> None:
        """Raises EngineError if the ranks of a line are not connected, or time runs out."""
        self._topology, self._collective, self._grid = topology, collective, grid
        self._size, self._budget = size, budget.unheard()
        self._axes = [
            self._lines(np.moveaxis(grid, axis, -1).reshape(-1, grid.shape[axis])) for axis in range(grid.ndim)
        ]

    def schedules(self) -> Iterator[Schedule]:
        """All axes in one shot, then one axis in two shots, then two, .., as long as there is time."""
        for twice in range(self._grid.ndim):
            if not twice or self._budget.left():
                yield self._schedule(twice)

    def _lines(self, ranks: Integers) -> list[_Lines]:
        """The lines of an axis by their wires, of which each kind is searched once."""
        members, alone = np.asarray(self._collective.members), self._grid.ndim == 1
        kinds: dict[object, tuple[Topology, list[int], list[Integers]]] = {}
        for line in range(len(ranks)):
            if alone:
                wires = Wires(self._topology, np.arange(len(self._topology.links)))
            else:
                wires = wires_of(self._topology, members[ranks[line]])
            own = wires.topology
            ends = tuple((link.src, link.dst, link.alpha, link.bandwidth) for link in own.links)
            _, numbers, links = kinds.setdefault((tuple(node.kind for node in own.nodes), ends), (own, [], []))
            numbers.append(line)
            links.append(wires.links)
        found = []
        for own, numbers, links in kinds.values():
            part = self._size // self._grid.ndim
            gather = Collective.make("all_gather", members=members.tolist() if alone else range(ranks.shape[1]))
            once = expand(greedy.run(own, gather, part * ranks.shape[1], self._budget))
            scatter = replace(gather, kind="reduce_scatter")
            twice = None if alone else expand(greedy.run(own, scatter, part, self._budget))
            found.append(_Lines(ranks[numbers], np.stack(links), once, twice))
        return found

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
        builder, moved = ValueBuilder(), _Moved()
        for chunk in range(len(weight)):
            order, piece = cuts[chunk % len(cuts)]
            _Part(builder, moved, chunk, cut.ranks).move([self._axes[axis] for axis in order], piece)
        return Schedule(self._topology, cut, builder.build(), moved.by_step())


class _Moved:
    """Columns of transfers, as they are collected."""

    def __init__(self) -> None:
        self._columns: list[tuple[Integers, ...]] = []  # value, result, src, dst, step, number of links
        self._links: list[Integers] = []

    def hops(
        self, lines: _Lines, rows: Transfers, chosen: Integers, step: int, value: Integers, result: Integers
    ) -> None:
        """The chosen transfers of every line; `value` and `result` are (lines, chosen)."""
        lengths = np.diff(rows.offset)[chosen]
        columns = (
            lines.ranks[:, rows.src[chosen]],
            lines.ranks[:, rows.dst[chosen]],
            rows.step[chosen] + step,
            lengths,
        )
        self._columns.append(tuple(np.broadcast_to(column, value.shape) for column in (value, result, *columns)))
        self._links.append(lines.links[:, pieces(rows.link, rows.offset[chosen], lengths)])

    def sums(self, ranks: Integers, step: Integers, value: Integers, result: Integers) -> None:
        """Each rank adds what it holds to what has arrived."""
        self._columns.append((value, result, ranks, ranks, step, np.zeros_like(ranks)))

    def by_step(self) -> Transfers:
        """All of them, in the order of steps."""
        if not self._columns:
            return Transfers.of([])
        value, result, src, dst, step, lengths = (
            np.concatenate([column.reshape(-1) for column in columns]) for columns in zip(*self._columns, strict=True)
        )
        links = np.concatenate([links.reshape(-1) for links in self._links])
        order, first = in_order(step), np.cumsum(lengths) - lengths
        offset = np.concatenate(([0], np.cumsum(lengths[order])))
        flat = pieces(links, first[order], lengths[order])
        return Transfers(value[order], result[order], src[order], dst[order], step[order], offset, flat)


class _Part:
    """The state of a chunk: the value that each rank holds; -1: it is done."""

    def __init__(self, builder: ValueBuilder, moved: _Moved, chunk: int, ranks: int) -> None:
        self._builder, self._moved, self._step = builder, moved, 0
        self._held = np.asarray([builder.contribution(chunk, rank) for rank in range(ranks)])

    def move(self, axes: list[list[_Lines]], piece: tuple[int, ...]) -> None:
        """All its transfers; as many of the first axes as `piece` has entries take two shots."""
        for kinds, place in zip(axes, piece, strict=False):
            self._scatter(kinds, place)
        for kinds in axes[len(piece) :]:
            self._gather(kinds)
        for kinds, place in reversed(list(zip(axes, piece, strict=False))):
            self._spread(kinds, place)

    def _active(self, lines: _Lines, place: int = 0) -> _Lines:
        """The lines whose rank at `place` holds a value."""
        some = self._held[lines.ranks[:, place]] >= 0
        return replace(lines, ranks=lines.ranks[some], links=lines.links[some])

    def _scatter(self, kinds: list[_Lines], place: int) -> None:
        """Each line sums its values at the rank at `place`."""
        after = np.full_like(self._held, -1)
        for lines in map(self._active, kinds):
            assert lines.scatter is not None
            values, rows = lines.scatter.values, lines.scatter.transfers
            named = np.full((len(lines.ranks), len(values.chunk)), -1)
            own = np.flatnonzero(values.chunk == place).tolist()
            for value in own:
                rank, operands = int(values.rank[value]), list(values.operands(value))
                if rank >= 0:
                    named[:, value] = self._held[lines.ranks[:, rank]]
                else:
                    named[:, value] = [self._builder.sum(terms) for terms in named[:, operands].tolist()]
            chosen = np.flatnonzero(values.chunk[rows.value] == place)
            terms = named[:, rows.value[chosen]]
            self._moved.hops(lines, rows, chosen, self._step, terms, named[:, rows.result[chosen]])
            after[lines.ranks[:, place]] = named[:, own[-1]]
        self._held = after
        self._step += max(lines.scatter.steps for lines in kinds if lines.scatter)

    def _gather(self, kinds: list[_Lines]) -> None:
        """All ranks of a line get all its values, and add them as soon as the last one arrives."""
        for lines in map(self._active, kinds):
            rows, values = lines.gather.transfers, self._held[lines.ranks]
            if values.shape[1] > 1:
                moved = values[:, rows.value]
                self._moved.hops(lines, rows, np.arange(len(rows)), self._step, moved, moved)
                last = np.zeros(values.shape[1], np.int64)
                np.maximum.at(last, rows.dst, rows.step)
                total = np.asarray([self._builder.sum(terms) for terms in values.tolist()], np.int64)
                totals = np.broadcast_to(total[:, None], values.shape)
                self._moved.sums(lines.ranks, np.broadcast_to(last + self._step, values.shape), values, totals)
                self._held[lines.ranks] = totals
        self._step += max(lines.gather.steps for lines in kinds)

    def _spread(self, kinds: list[_Lines], place: int) -> None:
        """The ranks of a line get the value of the one at `place`."""
        for lines in [self._active(lines, place) for lines in kinds]:
            rows, values = lines.gather.transfers, self._held[lines.ranks[:, place]]
            chosen = np.flatnonzero(rows.value == place)
            moved = np.broadcast_to(values[:, None], (len(values), len(chosen)))
            self._moved.hops(lines, rows, chosen, self._step, moved, moved)
            self._held[lines.ranks] = values[:, None]
        self._step += max(lines.gather.steps for lines in kinds)
