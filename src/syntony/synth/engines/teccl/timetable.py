"""A timetable for hops, and the schedule with the same order.

Every hop starts as soon as its piece has arrived and its links are free. If several wait for a link, the one with the
longest branch below goes first (list scheduling by critical path: Kohler, IEEE ToC C-24(12), 1975):

    link 0 -> 1     [piece with 3 hops to go][2 to go][1]           time runs to the right

Times are those of the representatives' pieces; an orbit of links is busy for all that its links carry (ways.py). The
schedule keeps only the order per link queue: as in every Schedule, a hop starts when its data have arrived.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from syntony.synth.bounds.demand import block_weights
from syntony.synth.engines.teccl.trees import Hop, Want
from syntony.synth.engines.teccl.ways import Floats, Ways
from syntony.synth.model.collective import ChunkTable
from syntony.synth.model.schedule import Generator, Schedule, Transfer, Transfers
from syntony.synth.model.values import Values
from syntony.synth.symmetry.groups import chunk_permutation

ENGINE = "teccl"


def scheduled(ways: Ways, wants: Sequence[Want], hops: Sequence[Hop], size: int, pieces: int) -> Schedule:
    """The schedule in which the hops keep the order of their timetable; `pieces` per block. Bounds are left out."""
    topology, collective = ways.network.topology, ways.network.collective
    weights = block_weights(collective).reshape(-1)
    table = ChunkTable(np.repeat(np.arange(len(weights)), pieces), np.repeat(weights, pieces))
    cut = replace(collective, chunks=table)
    starts = _starts(ways, wants, hops, size / pieces)
    steps = [0] * len(hops)
    lanes: dict[tuple[int, ...], int] = {}
    rows = []
    for number in np.argsort(starts, kind="stable").tolist():
        hop = hops[number]
        route = ways.routes[hop.route]
        lane = ways.lane[hop.route]
        after = -1 if hop.parent < 0 else steps[hop.parent]
        steps[number] = lanes[lane] = max(after, lanes.get(lane, -1)) + 1
        value = hop.want * pieces + hop.piece
        rows.append(Transfer(value, value, route.src, route.dst, steps[number], route.links))
    rows.sort(key=lambda row: row.step)
    chunk = np.repeat([want.block for want in wants], pieces) * pieces + np.tile(np.arange(pieces), len(wants))
    values = Values(
        chunk,
        np.repeat([want.root for want in wants], pieces),
        np.zeros(len(chunk) + 1, np.int64),
        np.zeros(0, np.int64),
    )
    symmetry = []
    for generator in ways.group.generators:
        moved = chunk_permutation(cut, generator)
        assert moved is not None, "the group keeps blocks of equal weight"
        symmetry.append(Generator(tuple(generator), moved))
    return Schedule(topology, cut, values, Transfers.of(rows), engine=ENGINE, symmetry=tuple(symmetry))


def _starts(ways: Ways, wants: Sequence[Want], hops: Sequence[Hop], size: float) -> Floats:
    """When each hop starts, in seconds; `size` is that of the collective, for one piece of every block."""
    below: dict[int, list[int]] = defaultdict(list)
    seconds = [size * wants[hop.want].share for hop in hops]
    travel = [
        float(ways.alpha[hop.route] + share * ways.pace[hop.route]) for hop, share in zip(hops, seconds, strict=True)
    ]
    tail = travel[:]
    for number in reversed(range(len(hops))):
        parent = hops[number].parent
        below[parent].append(number)
        if parent >= 0:
            tail[parent] = max(tail[parent], travel[parent] + tail[number])
    # Lists, because routes have so few links that a call of NumPy takes longer than a loop.
    links, occupied = ways.orbit.tolist(), ways.occupied.tolist()
    free = [0.0] * (ways.orbits + 1)
    starts = np.zeros(len(hops))
    waiting = [(0.0, -tail[number], number, 0.0) for number in below[-1]]
    heapq.heapify(waiting)
    while waiting:
        start, urgency, number, since = heapq.heappop(waiting)
        route = hops[number].route
        begin = max(since, *(free[link] for link in links[route]))
        if begin > start:
            heapq.heappush(waiting, (begin, urgency, number, since))
            continue
        starts[number] = begin
        for link, spent in zip(links[route], occupied[route], strict=True):
            free[link] = begin + seconds[number] * spent
        free[ways.orbits] = 0.0  # the dummy link is always free
        arrival = begin + travel[number]
        for child in below[number]:
            heapq.heappush(waiting, (arrival, -tail[child], child, arrival))
    return starts
