"""The frontier of latency against bandwidth: for each number of steps, the least R/C with its proof.

    R/C ▲  x                   S = fewest steps, then one more each time. For each S a linear program bounds R/C from
        │     x                below (step_bound.py); ratios from there up to that of the last point are tried in
        │         x            ascending order, and the first with a schedule is the next point. The walk ends when R/C
        └────────────▶ S       meets the throughput bound; some collectives only approach it.

A point whose R/C equals that lower bound is optimal however finely chunks are cut. For other points, the proof says up
to how many pieces per chunk a smaller R/C is ruled out.

all_reduce is a reduce_scatter and an all_gather, so its frontier is computed from theirs: for each sum of steps, the
least sum of R/C, with both cut into their least common number of chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import count
from math import ceil, lcm

import numpy as np

from syntony.base.wording import counted
from syntony.synth.engines.engine import Budget, EngineError, OutOfTimeError, UndecidedError
from syntony.synth.engines.sccl.exact import (
    chunk_count,
    judged,
    least_steps,
    nothing_moves,
    ratio_of,
    rounds_floor,
    rounds_floor_in,
    spread,
    weight_count,
)
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.symmetry.reversal import in_owned_chunks, summed, summed_and_spread
from syntony.topologies.topology import Topology

MIN_CUTS = 6
"""Chunks are cut into up to this many pieces, or into up to twice as many as the lower bound on R/C needs."""
MAX_CUTS = 48
"""Chunks are never cut into more pieces than this."""
STRIDE = Fraction(1, 200)
"""With patience, after an instance that was not decided, ratios greater by no more than this part are skipped."""


@dataclass(frozen=True)
class Point:
    """One point of the frontier. `schedule.proof` says what is proven about it.

    optimal  no schedule with these steps has a smaller R/C, however finely chunks are cut (for all_reduce: none that is
             a reduce_scatter, then an all_gather; if there are many routes: none over shortest routes)
    """

    schedule: Schedule
    steps: int
    rounds: int
    chunks: int
    optimal: bool

    @property
    def ratio(self) -> Fraction:
        """R/C."""
        return ratio_of(self.schedule)


@dataclass(frozen=True)
class _Stage:
    """What is known for one number of steps: `least` bounds R per piece of the collective's own chunks; the point found
    is None where nothing beats the points before it."""

    least: Fraction
    point: Point | None


def pareto(
    topology: Topology,
    collective: Collective,
    budget: Budget,
    patience: float | None = None,
    solver: str = "CP-SAT",
) -> Iterator[Point]:
    """The frontier by growing steps.

    Raises UndecidedError if an instance cannot be decided; points yielded before stay valid. With `patience` (seconds),
    an instance that takes longer is skipped, with those of nearly the same R/C, and the proof of the point says so: the
    point may not be on the frontier.
    """
    walk = partial(_walk, budget=budget, patience=patience, solver=solver)
    if collective.kind == "all_reduce":
        base, gather = in_owned_chunks(collective)
    else:
        base = collective
    if not rounds_floor(topology, base):
        yield Point(judged(nothing_moves(topology, base)), 0, 0, chunk_count(base), True)
    elif collective.kind == "all_reduce":
        yield from _joined_walks(base, gather, walk(topology.reversed(), gather), walk(topology, gather))
    elif collective.combining:
        for stage in walk(topology.reversed(), collective.dual()):
            if stage.point:
                whole = summed(stage.point.schedule, topology)
                yield replace(stage.point, schedule=judged(whole, stage.point.schedule.proof))
    else:
        for stage in walk(topology, collective):
            if stage.point:
                yield replace(stage.point, schedule=judged(stage.point.schedule, stage.point.schedule.proof))


def _walk(
    topology: Topology, collective: Collective, budget: Budget, patience: float | None, solver: str
) -> Iterator[_Stage]:
    """The stages of a collective that sums nothing, from the fewest steps on, until the throughput bound is met.

    Their points' proofs are only what is ruled out for these steps.
    """
    floor = rounds_floor(topology, collective)
    best: Fraction | None = None
    for steps in count(least_steps(topology, collective)):
        if not budget.left():
            raise OutOfTimeError(f"the frontier was walked up to {steps - 1} steps in {budget.timeout:g} s")
        least = rounds_floor_in(topology, collective, steps, budget)
        if best is not None and best <= least:
            yield _Stage(least, None)
            continue
        ruled_out = _RuledOut(collective, steps, least)
        found, next_ratio = None, Fraction(0)
        for ratio, rounds, pieces in _candidates(steps, least, best, ruled_out.cuts):
            if ratio < next_ratio:
                ruled_out.skipped += 1
                continue
            finer = _cut_finer(collective, pieces)
            question = budget if patience is None else Budget(min(patience, budget.left()))
            numbers = f"({chunk_count(finer)}, {steps}, {rounds})"
            try:
                schedule = spread(topology, finer, steps, rounds, question, solver, least * pieces)
            except UndecidedError as error:
                if patience is None or not budget.left() or not isinstance(error, OutOfTimeError):
                    raise type(error)(f"{error} (proven so far: {ruled_out.bound})") from error
                ruled_out.undecided.append(numbers)
                next_ratio = ratio * (1 + STRIDE)
                continue
            except EngineError:
                ruled_out.refuted.append(numbers)
                continue
            best = ratio
            rounds = int(schedule.rounds.sum())
            schedule = replace(schedule, proof=ruled_out.describe(ratio))
            found = Point(schedule, len(schedule.rounds), rounds, chunk_count(finer), ratio <= least)
            break
        yield _Stage(least, found)
        if best is not None and best <= floor:
            return


@dataclass
class _RuledOut:
    """What is proven while ratios for one number of steps are tried. `least` is R per piece."""

    collective: Collective
    steps: int
    least: Fraction
    refuted: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    skipped: int = 0

    @property
    def cuts(self) -> int:
        """The most pieces that a chunk is cut into."""
        return min(max(MIN_CUTS, 2 * self.least.denominator), MAX_CUTS)

    @property
    def bound(self) -> str:
        """Describes the lower bound."""
        return f"R/C >= {self.least / weight_count(self.collective)} in {counted(self.steps, 'step')}"

    def describe(self, found: Fraction) -> str:
        """Describes what is proven, given that `found` rounds per piece are possible."""
        if found <= self.least:
            return f"no smaller R/C in {counted(self.steps, 'step')}, however chunks are cut (linear bound)"
        proven = [f"{self.bound} (linear bound)"]
        if self.refuted:
            proven.append("proven infeasible: (C, S, R) = " + ", ".join(self.refuted))
        if self.undecided:
            also = f", and {self.skipped} others with hardly more R/C" if self.skipped else ""
            proven.append("not decided in time: (C, S, R) = " + ", ".join(self.undecided) + also)
        else:
            ratio = found / weight_count(self.collective)
            proven.append(f"so none below {ratio} with chunks cut into up to {self.cuts}")
        return "; ".join(proven)


def _candidates(steps: int, least: Fraction, best: Fraction | None, cuts: int) -> Iterator[tuple[Fraction, int, int]]:
    """(R / pieces, R, pieces) with least <= R / pieces < best, in that order; infinite if there is no best yet."""
    top = best if best is not None else max(least, Fraction(steps)) + 1
    while True:
        found = []
        for pieces in range(1, cuts + 1):
            for rounds in range(max(steps, ceil(least * pieces)), ceil(top * pieces)):
                found.append((Fraction(rounds, pieces), rounds, pieces))
        yield from sorted(found)
        if best is not None:
            return
        least, top = top, 2 * top


def _cut_finer(collective: Collective, pieces: int) -> Collective:
    """Each chunk cut into `pieces` equal ones."""
    chunks = collective.chunks
    return replace(collective, chunks=ChunkTable(np.repeat(chunks.block, pieces), np.repeat(chunks.weight, pieces)))


# all_reduce -------------------------------------------------------------------------------------------------------


def _joined_walks(
    base: Collective, gather: Collective, down: Iterator[_Stage], up: Iterator[_Stage]
) -> Iterator[Point]:
    """For each sum of steps, the best sum of two stages, if it beats those of fewer steps."""
    sides = [_Side(down), _Side(up)]
    best: Fraction | None = None
    for more in count():
        for side in sides:
            side.reach(more)
        if more > sum(len(side.stages) - 1 for side in sides):
            return
        pairs = [(first, more - first) for first in range(more + 1)]
        least = min(sides[0].least(first) + sides[1].least(second) for first, second in pairs)
        first, second = min(pairs, key=lambda pair: sides[0].at(pair[0]).ratio + sides[1].at(pair[1]).ratio)
        point = _joined(base, gather, sides[0].at(first), sides[1].at(second), least)
        if best is None or point.ratio < best:
            best = point.ratio
            yield point


class _Side:
    """One half's stages, as many as were needed, and the best point up to each."""

    def __init__(self, walk: Iterator[_Stage]) -> None:
        self._walk = walk
        self.stages: list[_Stage] = []
        self._best: list[Point] = []

    def reach(self, stage: int) -> None:
        """Walks to this stage, or to the end."""
        while len(self.stages) <= stage and (following := next(self._walk, None)) is not None:
            self.stages.append(following)
            self._best.append(following.point or self._best[-1])

    def at(self, stage: int) -> Point:
        """The best point with this many more steps than the fewest."""
        return self._best[min(stage, len(self._best) - 1)]

    def least(self, stage: int) -> Fraction:
        """The bound there."""
        return self.stages[min(stage, len(self.stages) - 1)].least


def _joined(base: Collective, gather: Collective, down: Point, up: Point, least: Fraction) -> Point:
    """The reduce_scatter that is `down` backwards, then `up`. No two halves of as many steps have fewer than `least`
    rounds per piece together."""
    pieces = [len(point.schedule.collective.chunks) // len(gather.chunks) for point in (down, up)]
    common = lcm(*pieces)
    halves = [_scaled(point.schedule, common // own) for point, own in zip((down, up), pieces, strict=True)]
    whole = summed_and_spread(halves[0], halves[1], _cut_finer(base, common))
    rounds = int(whole.rounds.sum())
    optimal = Fraction(rounds, common) <= least
    if optimal:
        proven = f"no two halves of {counted(len(whole.rounds), 'step')} have a smaller R/C, however chunks are cut"
    else:
        proven = f"reduce_scatter: {down.schedule.proof}; all_gather: {up.schedule.proof}"
    return Point(judged(whole, proven), len(whole.rounds), rounds, chunk_count(whole.collective), optimal)


def _scaled(schedule: Schedule, pieces: int) -> Schedule:
    """The schedule with each chunk cut into equal pieces that go the same way together, in as many times the rounds."""
    finer = _cut_finer(schedule.collective, pieces)
    rows = [
        replace(row, value=row.value * pieces + piece, result=row.value * pieces + piece)
        for row in schedule.transfers.rows()
        for piece in range(pieces)
    ]
    return replace(
        schedule,
        collective=finer,
        values=ValueBuilder.of_chunks(finer).build(),
        transfers=Transfers.of(rows),
        rounds=schedule.rounds * pieces,
    )
