r"""Stages: combines the schedules of lines into one of all ranks.

    all_gather, block of rank 5 at (1, 1) of levels 3 x 4        the line's schedule takes block 1 to all four

      stage 1, level 0:  line (1 5 9)       5 ──▶ 1, 9
      stage 2, level 1:  lines (0 1 2 3), (4 5 6 7), (8 9 10 11), each from its second rank to the others

A block is cut wherever one of the schedules that carry it cuts its blocks. So every piece is a part of one chunk of
each of these schedules, and gets the transfers of that chunk, with ranks and links renamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import lcm

import numpy as np
from numpy.typing import NDArray

from syntony.base.rows import ascending, pieces
from syntony.synth.engines.engine import EngineError
from syntony.synth.engines.hierarchy.compositions import Composition
from syntony.synth.engines.hierarchy.lines import LineSolver
from syntony.synth.engines.wires import wires_of
from syntony.synth.model.collective import MOST_WEIGHT, ChunkTable, Collective
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.symmetry.levels import Levels
from syntony.synth.symmetry.throughput import seconds_per_byte
from syntony.topologies.topology import Topology

Integers = NDArray[np.signedinteger]


@dataclass(frozen=True)
class Group:
    """`share` parts of every block take the levels in this order."""

    order: tuple[int, ...]
    share: int


class SolvedLevel:
    """All lines of a level with their schedules, as one table of transfers.

    lines     (lines, ranks of a line)  ranks of the collective
    line_of   (ranks,)                  the line of each rank
    """

    def __init__(self, lines: Integers, schedules: Sequence[Schedule], links: Sequence[Integers]) -> None:
        self.lines, self._schedules = lines, schedules
        self.line_of = np.empty(lines.size, np.int64)
        self.line_of[lines] = np.arange(len(lines))[:, None]
        self.steps = max(schedule.steps for schedule in schedules)
        kinds: dict[int, _ByChunk] = {}
        self._tables = [kinds.setdefault(id(schedule), _ByChunk(schedule)) for schedule in schedules]
        moved = [table.transfers for table in self._tables]
        self._base = np.cumsum([0, *(len(some) for some in moved)])
        self.src = np.concatenate([line[some.src] for line, some in zip(lines, moved, strict=True)])
        self.dst = np.concatenate([line[some.dst] for line, some in zip(lines, moved, strict=True)])
        self.step = np.concatenate([some.step for some in moved])
        self.hops = np.concatenate([np.diff(some.offset) for some in moved])
        self.offset = np.concatenate(([0], np.cumsum(self.hops)))
        self.link = np.concatenate([own[some.link] for own, some in zip(links, moved, strict=True)])

    @cached_property
    def block_seconds(self) -> Fraction:
        """Seconds per byte of a block on the busiest line, if every rank of it has one."""
        seconds = []
        for schedule in {id(schedule): schedule for schedule in self._schedules}.values():
            chunks = schedule.collective.chunks
            block = int(chunks.weight[chunks.block == 0].sum()) * schedule.collective.unit
            seconds.append(seconds_per_byte(schedule) / block)
        return max(seconds)

    def whole(self) -> int:
        """A number of parts such that no schedule's chunk boundary falls inside a part."""
        return lcm(*(table.whole for table in self._tables))

    def ends(self, line: int, block: int, whole: int) -> Integers:
        """Where the chunks of the line's block end, in parts of `whole`."""
        return self._tables[line].ends(block, whole)

    def table_of(self, line: int) -> int:
        """Lines with equal numbers share one schedule."""
        return id(self._tables[line])

    def transfers(self, line: int, block: int, ends: Integers, whole: int) -> tuple[Integers, Integers]:
        """Two columns: the piece of the block, of those that end at `ends`, and the row of this table that moves it."""
        table = self._tables[line]
        chunk = table.first[block] + np.searchsorted(table.ends(block, whole), ends)
        begin, count = table.begin[chunk], np.diff(table.begin)[chunk]
        piece = np.repeat(np.arange(len(ends)), count)
        return piece, self._base[line] + pieces(np.arange(table.begin[-1]), begin, count)


class _ByChunk:
    """A schedule's transfers in the order of its chunks: those of chunk c are begin[c] to begin[c + 1]."""

    def __init__(self, schedule: Schedule) -> None:
        moved, chunks = schedule.transfers, schedule.collective.chunks
        chunk = schedule.values.chunk[moved.value]
        order = np.argsort(chunk, kind="stable")
        hops = np.diff(moved.offset)[order]
        self.transfers = Transfers(
            chunk[order], chunk[order], moved.src[order], moved.dst[order], moved.step[order],
            np.concatenate(([0], np.cumsum(hops))), pieces(moved.link, moved.offset[:-1][order], hops),
        )  # fmt: skip
        self.begin = np.concatenate(([0], np.cumsum(np.bincount(chunk, minlength=len(chunks)))))
        self.first = np.searchsorted(chunks.block, np.arange(schedule.collective.blocks + 1))
        self._total = [int(chunks.weight[a:b].sum()) for a, b in zip(self.first[:-1], self.first[1:], strict=True)]
        self._weight = chunks.weight.astype(np.int64)
        self.whole = lcm(*self._total)

    def ends(self, block: int, whole: int) -> Integers:
        weight = self._weight[self.first[block] : self.first[block + 1]]
        return np.cumsum(weight) * (whole // self._total[block])


def solve(
    topology: Topology, collective: Collective, levels: Levels, composition: Composition, solver: LineSolver
) -> list[SolvedLevel]:
    """Every level's lines with their schedules; `collective` sums nothing. Raises EngineError."""
    members = np.asarray(collective.members)
    root = levels.coordinates[collective.root]
    solved = []
    for level in range(len(levels)):
        how = composition.inside if level == len(levels) - 1 else composition.across
        lines = levels.lines(level)
        wires = [wires_of(topology, members[line]) for line in lines]
        place = int(root[level]) if collective.rooted else 0
        schedules = [solver.schedule(own.topology, how, place) for own in wires]
        solved.append(SolvedLevel(lines, schedules, [own.links for own in wires]))
    return solved


class Cut:
    """Every block cut into groups, and these where any schedule cuts them: a chunk table, and where its chunks end.

    `directions` are the solved levels of all schedules that shall have these chunks.
    """

    def __init__(
        self, collective: Collective, levels: Levels, groups: Sequence[Group], directions: Sequence[list[SolvedLevel]]
    ) -> None:
        self.whole = lcm(*(level.whole() for solved in directions for level in solved))
        self.groups = groups
        self._ends: dict[tuple[int, int], Integers] = {}
        if self.whole * sum(group.share for group in groups) >= 1 << 62:
            raise EngineError("engine hierarchy: the schedules of the levels cut blocks too differently to be combined")
        known: dict[frozenset[tuple[int, int]], Integers] = {}
        block_of: list[int] = []
        weight: list[Integers] = []
        owed = np.bincount(collective.chunks.block, collective.chunks.weight).astype(np.int64)
        for block in range(collective.blocks):
            for number, group in enumerate(groups):
                users = {
                    (solved[stage.level].table_of(int(line)), stage.block): (solved[stage.level], int(line))
                    for stage in stages_of(collective, levels, block, group.order)
                    for solved in directions
                    for line in solved[stage.level].line_of[stage.holders]
                }
                key = frozenset(users)
                if key not in known:
                    every = [level.ends(line, of, self.whole) for (_, of), (level, line) in users.items()]
                    known[key] = ascending(np.concatenate(every))
                self._ends[block, number] = known[key]
                weight.append(np.diff(known[key], prepend=0) * group.share * owed[block])
                block_of += [block] * len(known[key])
        weights = np.concatenate(weight)
        weights //= np.gcd.reduce(weights)
        if int(weights.max()) > MOST_WEIGHT:
            raise EngineError("engine hierarchy: the schedules of the levels cut blocks too differently to be combined")
        self.chunks = ChunkTable(np.asarray(block_of), weights)

    def ends(self, block: int, group: int) -> Integers:
        """Where the chunks of a group's part of a block end, in parts of `whole`."""
        return self._ends[block, group]


@dataclass(frozen=True, eq=False)
class Stage:
    """One level's stage of a block: `holders` have it before, each on a separate line, where it is `block`."""

    level: int
    holders: Integers
    block: int


def stages_of(collective: Collective, levels: Levels, block: int, order: Sequence[int]) -> Iterator[Stage]:
    """The stages of a block of a collective that sums nothing."""
    kind, ranks = collective.kind, collective.ranks
    starts = {"all_to_all": block // ranks, "broadcast": collective.root, "scatter": collective.root}
    ends = {"all_to_all": block % ranks, "gather": collective.root, "scatter": block}
    start = levels.coordinates[starts.get(kind, block)]
    end = levels.coordinates[ends[kind]] if kind in ends else None
    at: list[int | slice] = start.tolist()
    for level in order:
        holders = np.atleast_1d(levels.grid[tuple(at)]).reshape(-1)
        size, there = levels.shape[level], 0 if end is None else int(end[level])
        of = {"broadcast": 0, "all_to_all": int(start[level]) * size + there, "scatter": there}
        yield Stage(level, holders, of.get(kind, int(start[level])))
        at[level] = slice(None) if end is None else there


def composed(
    topology: Topology, collective: Collective, levels: Levels, solved: Sequence[SolvedLevel], cut: Cut
) -> Schedule:
    """The schedule in which every group takes its levels one after another; `collective` sums nothing."""
    collective = replace(collective, chunks=cut.chunks)
    columns: list[tuple[Integers, ...]] = []  # per stage and line: chunk, src, dst, step, hops; and links apart
    links: list[Integers] = []
    first = 0
    for block in range(collective.blocks):
        for number, group in enumerate(cut.groups):
            ends = cut.ends(block, number)
            step = 0
            for stage in stages_of(collective, levels, block, group.order):
                level = solved[stage.level]
                for line in level.line_of[stage.holders].tolist():
                    piece, row = level.transfers(line, stage.block, ends, cut.whole)
                    hops = level.hops[row]
                    columns.append((first + piece, level.src[row], level.dst[row], level.step[row] + step, hops))
                    links.append(pieces(level.link, level.offset[row], hops))
                step += level.steps
            first += len(ends)
    chunk, src, dst, step_of, hops = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.argsort(step_of, kind="stable")
    offset = np.concatenate(([0], np.cumsum(hops)))
    transfers = Transfers(
        chunk[order], chunk[order], src[order], dst[order], step_of[order],
        np.concatenate(([0], np.cumsum(hops[order]))), pieces(np.concatenate(links), offset[:-1][order], hops[order]),
    )  # fmt: skip
    return Schedule(topology, collective, ValueBuilder.of_chunks(collective).build(), transfers)
