"""Trees for a pipeline: each as shallow as the slots that earlier trees left free allow.

Time is counted in slots; the fastest link takes one slot for a chunk. Slices follow each other every `period` slots. So
a transfer takes the same slots in every period, and a table of `period` slots per link is enough (a reservation table:
Rau, "Iterative modulo scheduling", MICRO-27, 1994):

    link 0 -> 1   [0 . 2 2 .]      tree 0 leaves in slots 0, 5, 10, ..     period 5; a dot is free
    link 1 -> 2   [. 0 . 2 2]      .. and goes on in slots 1, 6, 11, ..

A tree grows by the hop that arrives first, from its root at time 0. A tree for sums grows against the links and back in
time: its hop at time t ends where slot -t begins. So a tree for sums and one for copies meet at the root at time 0, and
share the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from syntony.synth.model.routes import Route


@dataclass(frozen=True)
class Hop:
    """A possible hop of trees: a route, and how many slots a chunk takes on each of its links."""

    route: Route
    slots: tuple[int, ...]

    @property
    def longest(self) -> int:
        """Slots until a chunk has left."""
        return max(self.slots)


@dataclass(frozen=True)
class Tree:
    """Hops with the times at which they begin, from the root on; of `up` counted back from time 0."""

    root: int
    up: tuple[tuple[Hop, int], ...]
    down: tuple[tuple[Hop, int], ...]


class ReservationTable:
    """Which slots of every period are free, per link: bit s of a mask is slot s."""

    def __init__(self, period: int, links: int) -> None:
        self.period = period
        self._free = [(1 << period) - 1] * links

    def copy(self) -> ReservationTable:
        """Another table of the same state."""
        other = ReservationTable(self.period, 0)
        other._free = self._free.copy()
        return other

    def take_from(self, other: ReservationTable) -> None:
        """The state of the other table."""
        self._free = other._free

    def earliest(self, hop: Hop, since: int, backwards: bool) -> int | None:
        """The first time from `since` on at which the hop can begin; None if it never can."""
        if hop.longest > self.period:
            return None
        for time in range(since, since + self.period):
            if all(
                self._free[link] & mask == mask
                for link, mask in zip(hop.route.links, self._masks(hop, time, backwards), strict=True)
            ):
                return time
        return None

    def reserve(self, hop: Hop, time: int, backwards: bool) -> None:
        """Takes the slots of a hop that begins at `time`."""
        for link, mask in zip(hop.route.links, self._masks(hop, time, backwards), strict=True):
            self._free[link] &= ~mask

    def left(self, hop: Hop) -> int:
        """Free slots of the hop's fullest link."""
        return min(self._free[link].bit_count() for link in hop.route.links)

    def _masks(self, hop: Hop, time: int, backwards: bool) -> list[int]:
        masks = []
        for slots in hop.slots:
            start = (-time - slots if backwards else time) % self.period
            mask = ((1 << slots) - 1) << start
            masks.append((mask | mask >> self.period) & ((1 << self.period) - 1))
        return masks


Grown = tuple[tuple[tuple[Hop, int], ...], int]
"""Hops with their times, and when all is done."""

_NOTHING: Grown = (), 0


class Grower:
    """Grows trees over the hops of a network. Arriving takes one slot more than leaving, which stands for the alpha."""

    def __init__(self, hops: Sequence[Hop], ranks: int) -> None:
        self._ranks = ranks
        self._leaving: list[list[Hop]] = [[] for _ in range(ranks)]
        self._entering: list[list[Hop]] = [[] for _ in range(ranks)]
        for hop in hops:
            self._leaving[hop.route.src].append(hop)
            self._entering[hop.route.dst].append(hop)

    def grow(self, root: int, table: ReservationTable, backwards: bool) -> Grown | None:
        """Hops with their times, and the end of the last; reserves their slots. None if too few slots are free."""
        reached = {root: 0}
        grown: list[tuple[Hop, int]] = []
        heap: list[tuple[int, int, int, Hop, int, int]] = []
        turn = count()

        def offer(node: int) -> None:
            for hop in self._entering[node] if backwards else self._leaving[node]:
                end = hop.route.src if backwards else hop.route.dst
                if end not in reached:
                    push(hop, end, reached[node])

        def push(hop: Hop, end: int, since: int) -> None:
            time = table.earliest(hop, since, backwards)
            if time is not None:
                arrival = time + hop.longest + 1
                heappush(heap, (arrival, -table.left(hop), next(turn), hop, end, time))

        offer(root)
        while heap and len(reached) < self._ranks:
            arrival, _, _, hop, end, time = heappop(heap)
            if end in reached:
                continue
            if table.earliest(hop, time, backwards) != time:  # a hop of this tree took its slot: routes share links
                push(hop, end, time)
                continue
            table.reserve(hop, time, backwards)
            grown.append((hop, time))
            reached[end] = arrival
            offer(end)
        if len(reached) < self._ranks:
            return None
        return tuple(grown), max(reached.values())


def pack(
    grower: Grower, table: ReservationTable, choices: Sequence[Sequence[int]], up: bool, down: bool
) -> list[Tree] | None:
    """One tree per entry of `choices`, rooted where it is done first among those in it. None where the table has no
    room."""
    trees: list[Tree] = []
    for roots in choices:
        used = Counter(tree.root for tree in trees)
        found = []
        for root in roots:
            trial = table.copy()
            summed = grower.grow(root, trial, backwards=True) if up else _NOTHING
            spread = grower.grow(root, trial, backwards=False) if down and summed else _NOTHING
            if summed and spread:
                found.append((summed[1] + spread[1], used[root], root, summed, spread, trial))
        if not found:
            return None
        _, _, root, summed, spread, trial = min(found, key=lambda tree: tree[:3])
        trees.append(Tree(root, summed[0], spread[0]))
        table.take_from(trial)
    return trees
