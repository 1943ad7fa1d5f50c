r"""Reductions: sequences of collectives over parts of a group that together sum over all of it.

    a group of 2 x 4 ranks              state: which contributions each rank has summed of each chunk
      reduce_scatter over level 1         rank 0: chunks 0, 1 of ranks 0-3          rank 1: chunks 2, 3 of ranks 0-3 ..
      all_reduce     over level 0         rank 0: chunks 0, 1 of all                ..
      all_gather     over level 1         rank 0: all chunks of all                 done

A step names a collective, the levels over which its groups extend, and whether all ranks take part or only leaders
(those that are first in all levels further in). It is allowed if its collective makes sense: the inputs of a sum must
be the same chunks of different ranks, those of a gather different chunks. Steps that change nothing or lead back are
left out. The reachable states and the steps between them form a graph; a program is a path from nothing summed to
everything summed. After Xie et al., P2 (MLSys'22), section 4, over the factors of the reduced axes alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "reduce", "broadcast")
MOST_STEPS = 5
MOST_RANKS = 64
"""Per group: states grow with the cube of its size."""

State = NDArray[np.bool_]
"""(ranks, chunks, ranks): whose contributions a rank has in its sum of a chunk; none: it does not hold the chunk."""


@dataclass(frozen=True)
class Step:
    """One collective of a program.

    share  a rank's input (for all_gather: output), as a part of the whole buffer
    """

    collective: str
    levels: tuple[int, ...]
    leaders: bool
    share: float

    def __str__(self) -> str:
        who = " of leaders" if self.leaders else ""
        return f"{self.collective}[{','.join(map(str, self.levels))}]{who}"

    def groups(self, group: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n, m): the ranks of every group of the step, in a group of ranks by levels."""
        depth = group.ndim
        moved = np.moveaxis(group, self.levels, range(depth - len(self.levels), depth))
        others = [level for level in range(depth) if level not in self.levels]
        if self.leaders:
            moved = moved[tuple(0 if level > max(self.levels) else slice(None) for level in others)]
        return moved.reshape(-1, math.prod(group.shape[level] for level in self.levels))


Program = tuple[Step, ...]


@cache
def programs(shape: tuple[int, ...]) -> tuple[Program, ...]:
    """All programs for a group of that shape, short ones first. Raises UserError for a group that is too large."""
    ranks = math.prod(shape)
    if ranks > MOST_RANKS:
        raise UserError(f"the reduced axes have {ranks} ranks; programs are looked for up to {MOST_RANKS}")
    start = np.zeros((ranks, ranks, ranks), bool)
    start[np.arange(ranks), :, np.arange(ranks)] = True
    graph = _Graph(shape)
    goal = np.ones_like(start).tobytes()
    left = graph.distances(start, goal)
    found: list[Program] = []

    def walk(state: bytes, path: list[Step], seen: set[bytes]) -> None:
        if state == goal:
            found.append(tuple(path))
            return
        for step, after in graph.steps[state]:
            if after not in seen and len(path) + 1 + left.get(after, MOST_STEPS) <= MOST_STEPS:
                walk(after, [*path, step], seen | {after})

    walk(start.tobytes(), [], {start.tobytes()})
    return tuple(sorted(found, key=len))


class _Graph:
    """States, and the steps that lead from them."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape, self._ranks = shape, math.prod(shape)
        self.steps: dict[bytes, list[tuple[Step, bytes]]] = {}

    def distances(self, start: State, goal: bytes) -> dict[bytes, int]:
        """The number of steps from each reachable state to the goal."""
        layer = {start.tobytes(): start}
        before: dict[bytes, set[bytes]] = {}
        for _ in range(MOST_STEPS):
            fresh: dict[bytes, State] = {}
            for key, state in layer.items():
                self.steps[key] = []
                for step, new in self._after(state) if key != goal else ():
                    after = new.tobytes()
                    self.steps[key].append((step, after))
                    before.setdefault(after, set()).add(key)
                    if after not in self.steps:
                        fresh[after] = new
            layer = fresh
        for key in layer:
            self.steps.setdefault(key, [])
        left, edge = {goal: 0}, [goal]
        for later in edge:  # grows
            for key in before.get(later, ()):
                if key not in left:
                    left[key] = left[later] + 1
                    edge.append(key)
        return left

    def _after(self, state: State) -> Iterator[tuple[Step, State]]:
        depth = len(self._shape)
        members = np.arange(self._ranks).reshape(self._shape)
        for count in range(1, depth + 1):
            for levels in combinations(range(depth), count):
                for leaders in (False, True) if max(levels) < depth - 1 else (False,):
                    for collective in COLLECTIVES:
                        step = Step(collective, levels, leaders, 0.0)
                        done = applied(collective, state, step.groups(members))
                        if done is not None and not np.array_equal(done[0], state):
                            yield Step(collective, levels, leaders, done[1] / self._ranks), done[0]


def applied(collective: str, state: State, groups: NDArray[np.int64]) -> tuple[State, int] | None:
    """The state after the collective in all of these groups, and the most chunks in a rank's input (for all_gather:
    output); None if it makes no sense in one of them."""
    part = state[groups]  # (groups, members, chunks, contributions)
    held = _any(part, 3)
    if not _any(held[:, 0], 1).all():
        return None
    after = state.copy()
    if collective in ("all_reduce", "reduce_scatter", "reduce"):
        if (held != held[:, :1]).any() or (part.sum(axis=1, dtype=np.int64) > 1).any():
            return None
        total = _any(part, 1)
        chunks = int(held[:, 0].sum(axis=1).max())
        if collective == "all_reduce":
            after[groups] = total[:, None]
            return after, chunks
        after[groups] = False
        if collective == "reduce":
            after[groups[:, 0]] = total
            return after, chunks
        for group, sums, own in zip(groups, total, held[:, 0], strict=True):
            places = np.flatnonzero(own)
            if len(places) % len(group):
                return None
            for member, mine in zip(group, places.reshape(len(group), -1), strict=True):
                after[member, mine] = sums[mine]
        return after, chunks
    if collective == "all_gather":
        if (held.sum(axis=1) > 1).any() or (held.sum(axis=2) != held.sum(axis=2)[:, :1]).any():
            return None
        after[groups] = _any(part, 1)[:, None]
        return after, int(_any(held, 1).sum(axis=1).max())
    if held[:, 1:].any():
        return None
    after[groups] = part[:, :1]
    return after, int(held[:, 0].sum(axis=1).max())


def _any(flags: NDArray[np.bool_], axis: int) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.logical_or.reduce(flags, axis=axis)
    return found


def describe(program: Sequence[Step]) -> str:
    """A program in one line."""
    return "; ".join(map(str, program))


def verified(program: Sequence[Step], shape: tuple[int, ...]) -> bool:
    """Whether the program leaves every rank with every chunk, each contribution summed into it exactly once.

    It is run with counts: how often a rank has summed each rank's contribution into each chunk.
    """
    ranks = math.prod(shape)
    members = np.arange(ranks).reshape(shape)
    counts = np.zeros((ranks, ranks, ranks), np.int64)
    counts[np.arange(ranks), :, np.arange(ranks)] = 1
    for step in program:
        for group in step.groups(members):
            counts[group] = _ended(step.collective, counts[group])
    return bool((counts == 1).all())


def _ended(collective: str, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The state of the members of one group after the collective; (members, chunks, contributions)."""
    after = np.zeros_like(counts)
    if collective == "broadcast":
        after[:] = counts[0]
    elif collective == "reduce":
        after[0] = counts.sum(axis=0)
    elif collective == "reduce_scatter":
        present = np.flatnonzero(counts[0].any(axis=1))
        for member, part in enumerate(np.array_split(present, len(counts))):
            after[member, part] = counts[:, part].sum(axis=0)
    elif collective == "all_gather" and (counts.any(axis=2).sum(axis=0) > 1).any():
        return counts  # two members have the same chunk, so there is nothing to gather
    else:
        after[:] = counts.sum(axis=0)
    return after
