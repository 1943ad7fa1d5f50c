"""Plans for an all_reduce on a grid in which partial sums cross from line to line: each is summed at several ranks.

A tree that sums at one rank leaves wires idle while the first sums are made and the last are spread. On a grid, a byte
may instead cross in several lines at once: sooner, because less was added before, or later, because less is left to do.

      one line, in the middle          two lines, early                  two lines, late
      a    b    c    d                 a    b    c    d                  a    b    c    d
      ▼    ▼    ▼    ▼                 ▼    ▼    ▼    ▼                  ▼    ▼    ▼    ▼
      ▼    ▼    ▼    ▼                 e ══ f ══ g ══ h   halves         e ↕  f ↕  g ↕  h ↕  first exchanged,
      i ══ j ══ k ══ l  all_reduce     i ══ j ══ k ══ l   cross, and     i ↕  j ↕  k ↕  l ↕  then all crosses
      ▲    ▲    ▲    ▲                 ▲    ▲    ▲    ▲   are exchanged  ▲    ▲    ▲    ▲    in both lines
      2 hops, 3, then 2 back           1 hop, 3, 1, then 1 back          1 hop, 1, 3, then 1 back

A plan adds along one axis to the ranks of some lines, sums along the other axis in those, and copies back. On a line,
partial sums meet in the middle: its two middle ranks send each other their half's sum, and both add.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from syntony.synth.model.values import ValueBuilder

ALL_SETS = 4
"""Up to this many lines, every set of them is a choice; of more, evenly spaced ones and pairs of mirror images."""


@dataclass(frozen=True)
class Hop:
    """A transfer of a plan, `start` seconds after the plan begins. `adds`: the destination adds `value` to `result`.

    Values of a plan: rank r's contribution is r, its sums follow (`Plan.sums`).
    """

    value: int
    result: int
    src: int
    dst: int
    start: float


@dataclass(frozen=True)
class Plan:
    """Hops in the order of their start.

    sums     by sum, the two values that it adds
    seconds  after which all ranks have the result
    """

    hops: tuple[Hop, ...]
    sums: tuple[tuple[int, int], ...]
    seconds: float

    def values(self, chunk: int, ranks: int, values: ValueBuilder) -> list[int]:
        """The plan's values for this chunk."""
        found = [values.contribution(chunk, rank) for rank in range(ranks)]
        for one, other in self.sums:
            found.append(values.sum((found[one], found[other])))
        return found


def plans_of(grids: Iterable[NDArray[np.int64]], hop: float) -> list[Plan]:
    """All plans on these grids of two axes, each once. `hop`: seconds that a hop takes."""
    found: dict[tuple[Hop, ...], Plan] = {}
    for grid in grids:
        for lines in _sets(grid.shape[0]):
            for early in (True, False) if len(lines) > 1 else (True,):
                plan = _Planner(grid, hop).plan(lines, early)
                found.setdefault(plan.hops, plan)
    return list(found.values())


def _sets(lines: int) -> Iterator[tuple[int, ...]]:
    if lines <= ALL_SETS:
        for number in range(1, lines + 1):
            yield from combinations(range(lines), number)
        return
    spaced = (tuple(int((2 * part + 1) * lines / (2 * number)) for part in range(number)) for number in range(2, lines))
    mirrored = ((line, lines - 1 - line) for line in range(lines // 2))
    yield from ((line,) for line in range(lines))
    yield from dict.fromkeys((*spaced, *mirrored, tuple(range(lines))))


@dataclass
class _Planner:
    """Makes one plan.

    grid   ranks; the first axis numbers lines, which are added to some of them
    held   by rank, the value that it holds, and since when
    """

    grid: NDArray[np.int64]
    hop: float
    hops: list[Hop] = field(default_factory=list)
    sums: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held = [(rank, 0.0) for rank in range(self.grid.size)]

    def plan(self, lines: Sequence[int], early: bool) -> Plan:
        """All lines are added to some, which are exchanged after (early) or before they are summed themselves."""
        columns, rows = self.grid.T.tolist(), self.grid[list(lines)].tolist()
        for column in columns:
            self._gather(column, lines)
        if not early:
            self._exchanges(columns, lines)
        for row in rows:
            middle = sorted({(len(row) - 1) // 2, len(row) // 2})
            self._gather(row, middle)
            self._exchange(row, middle)
            self._spread(row, middle)
        if early:
            self._exchanges(columns, lines)
        for column in columns:
            self._spread(column, lines)
        hops = tuple(sorted(self.hops, key=lambda hop: hop.start))
        return Plan(hops, tuple(self.sums), max(since for _, since in self.held))

    def _exchanges(self, columns: list[list[int]], lines: Sequence[int]) -> None:
        for column in columns:
            self._exchange(column, lines)

    def _gather(self, line: list[int], roots: Sequence[int]) -> None:
        """Each root adds what the ranks that are nearest to it hold."""
        for place in _inwards(len(line), roots):
            self._add(line[place], line[place + _towards(place, roots)])

    def _spread(self, line: list[int], roots: Sequence[int]) -> None:
        """Each root copies to the ranks that are nearest to it."""
        for place in reversed(_inwards(len(line), roots)):
            way = line[place + _towards(place, roots)], line[place]
            if self.held[way[0]][0] != self.held[way[1]][0]:
                self._copy(way)

    def _exchange(self, line: list[int], roots: Sequence[int]) -> None:
        """The roots add what they hold, from both ends to the middle, and all have the sum."""
        below, above = (len(roots) - 1) // 2, len(roots) // 2
        way = [line[one : other + 1] for one, other in pairwise(roots)]
        for part in way[:below]:
            self._add(*part)
        for part in reversed(way[above:]):
            self._add(*reversed(part))
        if below != above:
            self._meet(way[below])
        for part in reversed(way[:below]):
            self._copy(part[::-1])
        for part in way[above:]:
            self._copy(part)

    def _add(self, *way: int) -> None:
        """The last rank of the way adds what the first one holds."""
        value, since = self.held[way[0]]
        into, ready = self.held[way[-1]]
        total = self._sum(into, value)
        self.held[way[-1]] = total, max(ready, self._sent(value, total, way, since))

    def _copy(self, way: Sequence[int]) -> None:
        """All ranks of the way get what the first one holds."""
        for src, dst in pairwise(way):
            value, since = self.held[src]
            self.held[dst] = value, self._sent(value, value, (src, dst), since)

    def _meet(self, way: Sequence[int]) -> None:
        """Both ends of the way add what they hold."""
        (one, since), (other, ready) = self.held[way[0]], self.held[way[-1]]
        total = self._sum(one, other)
        there = self._sent(one, total, way, since)
        back = self._sent(other, total, way[::-1], ready)
        self.held[way[-1]] = total, max(ready, there)
        self.held[way[0]] = total, max(since, back)

    def _sum(self, one: int, other: int) -> int:
        self.sums.append((one, other))
        return self.grid.size + len(self.sums) - 1

    def _sent(self, value: int, result: int, way: Sequence[int], now: float) -> float:
        """The value goes along the way, through ranks that pass it on; returns when it arrives."""
        for place in range(1, len(way)):
            src, dst = way[place - 1], way[place]
            self.hops.append(Hop(value, result if place == len(way) - 1 else value, src, dst, now))
            now += self.hop
        return now


def _towards(place: int, roots: Sequence[int]) -> int:
    """The direction to the nearest root."""
    nearest = min(roots, key=lambda root: (abs(root - place), root))
    return (nearest > place) - (nearest < place)


def _inwards(length: int, roots: Sequence[int]) -> list[int]:
    """The places that are no roots, the farthest from one first."""
    apart = {place: min(abs(root - place) for root in roots) for place in range(length)}
    return sorted((place for place in apart if apart[place]), key=lambda place: -apart[place])
