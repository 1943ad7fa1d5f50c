"""all_reduce on a mesh of two axes, by a timetable of plans in which partial sums cross (pipeline/partial_sums.py).

    mesh:4x4, 50 and 200 GB/s, 1 MB, alpha 1 us     bytes that cross the slow middle at the same time, by plan
      2 us   ████ all lines early
      3 us   ████ two lines early
      4..7   ████████████████ one line
      ..     ████ two lines late  ████ all lines late

Bytes are given to plans and times by a linear program (pipeline/departures.py), then cut into slices. These start in
the order of its times, or the most urgent first. A torus needs no such plans: engine bfb sums at all ranks alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from syntony.base.deadline import Deadline
from syntony.synth.engines.pipeline.departures import Wires, departures
from syntony.synth.engines.pipeline.list_scheduling import Ordering
from syntony.synth.engines.pipeline.partial_sums import Plan, plans_of
from syntony.synth.model.collective import ChunkTable
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.symmetry.levels import LevelsError, levels_of
from syntony.topologies.topology import Link

MOST_RANKS = 100
"""Larger meshes are left to trees: the linear program would take long."""
SLICES, TRIED = (25, 100, 400, 800), 2
"""Numbers of slices. Of those that the next two limits allow, so many are tried, the largest ones; else the first."""
LEAST_BYTES = 1024
"""Bytes of a slice, at least."""
MOST_TRANSFERS = 40_000
"""Transfers of a schedule, at most about."""
SLOTS, MOST_SLOTS = (4, 2, 1), 100
"""Slots of the timetable in the time of a hop: the most with which it has no more than so many slots in total, if it is
as long as the throughput bound."""
PACE = 0.75
"""Ordered by urgency, slices are due at this part of the time at which they are planned to begin."""
BEHIND = 1.3
"""Links that are faster than the slowest ones may be planned to carry this many times as much as they can: they fall
behind for a moment, and make up for it."""


@dataclass(frozen=True, eq=False)
class Mesh:
    """Ranks on a grid of two axes, with a link to and from each neighbour.

    links  by neighbours, the number of the link
    """

    network: Network
    grid: NDArray[np.int64]
    links: dict[tuple[int, int], int]

    @staticmethod
    def of(network: Network) -> Mesh | None:
        """None if it is not the network of an all_reduce of equal blocks on a mesh."""
        collective = network.collective
        direct = all(node.kind == "rank" for node in network.topology.nodes)
        if collective.kind != "all_reduce" or not direct or collective.ranks > MOST_RANKS:
            return None
        try:
            grid = levels_of(network.topology, collective).grid
        except LevelsError:
            return None
        if grid.ndim != 2:
            return None
        rank = {member: place for place, member in enumerate(collective.members)}
        ends = [(rank.get(link.src, -1), rank.get(link.dst, -1)) for link in network.topology.links]
        links = {pair: number for number, pair in enumerate(ends)}
        lines = [line.tolist() for line in (*grid, *grid.T)]
        near = {pair for line in lines for one, other in pairwise(line) for pair in ((one, other), (other, one))}
        return Mesh(network, grid, links) if near == set(ends) and len(ends) == len(near) else None

    def schedules(self, size: int, per_byte: float, deadline: Deadline) -> Iterator[Schedule]:
        """Schedules for the size, without bounds or proof; fewer slices first. `per_byte`: least seconds per byte."""
        sides = self._sides()
        fewest_hops = 2 * (self.grid.size - 1)
        numbers = [
            number for number in SLICES if number * LEAST_BYTES <= size and number * fewest_hops <= MOST_TRANSFERS
        ]
        for number in numbers[-TRIED:] or SLICES[:1]:
            slice_bytes = max(1.0, size / number)
            hop = max(link.alpha + slice_bytes / float(link.bandwidth) for link in self._wires)
            least = size * per_byte / hop
            slots = next((slots for slots in SLOTS if slots * least <= MOST_SLOTS), 0)
            if not slots:
                continue
            plans = plans_of([*sides, *(side.T for side in sides)], hop)
            for behind in (1.0, BEHIND) if self._unequal else (1.0,):
                found = departures(plans, self._classes(sides, behind), size, hop / slots, deadline)
                if found is None:
                    continue
                slices = found.slices(number)
                planned = self._schedule(slices)
                yield planned
                due = np.asarray([begin for begin, _ in slices]) / found.seconds
                yield Ordering(planned, size).by_urgency(PACE * due)

    @property
    def _wires(self) -> list[Link]:
        return [self.network.topology.links[number] for number in self.links.values()]

    @property
    def _unequal(self) -> bool:
        return len({link.bandwidth for link in self._wires}) > 1

    def _sides(self) -> list[NDArray[np.int64]]:
        """The grid as seen from all sides from which its links look the same."""
        turns: tuple[Callable[[NDArray[np.int64]], NDArray[np.int64]], ...] = (np.flipud, np.fliplr, np.transpose)
        sides = [self.grid]
        for turn in turns:
            sides += [turned for turned in map(turn, list(sides)) if self._same(turned)]
        return sides

    def _same(self, side: NDArray[np.int64]) -> bool:
        if side.shape != self.grid.shape:
            return False
        image = self._image(side)
        links = self.network.topology.links
        kinds = {pair: (links[number].alpha, links[number].bandwidth) for pair, number in self.links.items()}
        return all(kinds[image[src], image[dst]] == kind for (src, dst), kind in kinds.items())

    def _image(self, side: NDArray[np.int64]) -> list[int]:
        """By rank, the rank that has its place on that side."""
        image = np.empty(self.grid.size, np.int64)
        image[self.grid.reshape(-1)] = side.reshape(-1)
        return [int(rank) for rank in image]

    def _classes(self, sides: list[NDArray[np.int64]], behind: float) -> Wires:
        """The links in classes that look the same from some side."""
        images = [self._image(side) for side in sides]
        first = {(src, dst): min((image[src], image[dst]) for image in images) for src, dst in self.links}
        place = {pair: number for number, pair in enumerate(sorted(set(first.values())))}
        kind = {pair: place[like] for pair, like in first.items()}
        speed = np.asarray([float(self.network.topology.links[self.links[pair]].bandwidth) for pair in place])
        speed = np.where(speed > speed.min(), speed * behind, speed)
        return Wires(kind, speed, np.bincount(list(kind.values())))

    def _schedule(self, slices: list[tuple[float, Plan]]) -> Schedule:
        """Chunk i is slice i; transfers in the order of their planned starts."""
        collective = self.network.collective
        one = np.ones(len(slices), np.int64)
        cut = replace(collective, chunks=ChunkTable(np.zeros(len(slices), np.int64), one))
        values = ValueBuilder()
        rows = []
        for chunk, (begin, plan) in enumerate(slices):
            named = plan.values(chunk, collective.ranks, values)
            rows += [(begin + hop.start, chunk, hop, named) for hop in plan.hops]
        rows.sort(key=lambda row: row[:2])
        transfers = Transfers.of(
            Transfer(named[hop.value], named[hop.result], hop.src, hop.dst, step, (self.links[hop.src, hop.dst],))
            for step, (_, _, hop, named) in enumerate(rows)
        )
        return Schedule(self.network.topology, cut, values.build(), transfers)
