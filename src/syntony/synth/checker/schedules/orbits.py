"""Finds chunks that represent all chunks of a symmetric schedule, so that it can be proven without expanding it.

Every transfer concerns one chunk. Let the generators be automorphisms that map demands to demands. If they map one
chunk's transfers onto another's, one is moved correctly if the other is:

    listed      chunk 0: 0 ──▶ 1 ──▶ 2       proven as listed, against the demands on chunk 0
    generator   rank i -> i+1, chunk i -> i+1
    whole       chunk 1: 1 ──▶ 2 ──▶ 0, ..   follows from it

In the whole schedule, chunk 0 is moved by the transfers listed for it and by every image that is again of chunk 0.
There are no such images if only the identity fixes chunk 0, and no other chunk of its orbit is listed. The first
condition is checked by counting: the order of a group is the size of an orbit times that of a point's stabilizer.

How many elements there are is found from one point p. Walk from p by generators, and write at every point w(p) where
the same steps w take q, for one q of each orbit of nodes and chunks, and for every q that is one step from p. If it
never matters by which way one comes, then w(p) = p implies w(q) = q; so w leaves all points in their places that one
reaches from p by first going one step and then w's way, that is all of p's orbit; so does u^-1 w u, which takes p to
p too; so w(u(q)) = u(q). Hence w is the identity, and there is one element per point of p's orbit.

If any of this does not hold, the caller expands the schedule and proves that.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.base.rows import ascending
from syntony.synth.checker.contract import Contract
from syntony.synth.model.schedule import Schedule

_MOST_ENTRIES = 100_000_000

_Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Orbits:
    """Which elements represent which.

    order      order of the group: each listed transfer represents this many transfers of the whole schedule
    chunks     one chunk of every orbit; the listed one, if there is one
    link       per link, the least link of its orbit
    link_size  per link, how many links its orbit has
    """

    order: int
    chunks: tuple[int, ...]
    link: tuple[int, ...]
    link_size: tuple[int, ...]


def orbits_of(schedule: Schedule) -> Orbits | None:
    """The orbits of a symmetric schedule with columns in range; None if it must be expanded to be proven."""
    topology, collective, values = schedule.topology, schedule.collective, schedule.values
    nodes, chunks = len(topology.nodes), len(collective.chunks)
    moves = []
    for generator in schedule.symmetry:
        of_nodes, of_chunks = np.asarray(generator.nodes, np.int64), np.asarray(generator.chunks, np.int64)
        if not (_permutes(of_nodes, nodes) and _permutes(of_chunks, chunks)):
            return None
        if not _keeps_demands(schedule, of_nodes, of_chunks):
            return None
        moves.append(np.r_[of_nodes, nodes + of_chunks])
    if schedule.in_network or len(
        {*zip(values.chunk.tolist(), values.rank.tolist(), _terms(schedule), strict=True)}
    ) < len(values):
        return None
    try:
        links = [np.asarray(topology.link_permutation(generator.nodes), np.int64) for generator in schedule.symmetry]
    except UserError:
        return None
    component = _components(nodes + chunks, moves)
    order = _order(moves, component, collective.members[0])
    if order is None:
        return None
    orbit = component[nodes:]
    listed = ascending(values.chunk)
    if len(ascending(orbit[listed])) < len(listed) or (np.bincount(orbit)[orbit[listed]] != order).any():
        return None
    stands = {int(number): chunk for chunk, number in reversed(list(enumerate(orbit.tolist())))}
    stands.update(zip(orbit[listed].tolist(), listed.tolist(), strict=True))
    of_link = _components(len(topology.links), links)
    return Orbits(
        order, tuple(sorted(stands.values())), tuple(of_link.tolist()), tuple(np.bincount(of_link)[of_link].tolist())
    )


def _terms(schedule: Schedule) -> list[tuple[int, ...]]:
    offset, operand = schedule.values.offset.tolist(), schedule.values.operand.tolist()
    return [tuple(operand[a:b]) for a, b in pairwise(offset)]


def _permutes(move: _Numbers, size: int) -> bool:
    return len(move) == size and bool((np.sort(move) == np.arange(size)).all())


def _keeps_demands(schedule: Schedule, nodes: _Numbers, chunks: _Numbers) -> bool:
    """Whether nodes map to like nodes, members to members, and chunks to equal ones that the images demand."""
    topology, collective = schedule.topology, schedule.collective
    for node, image in zip(topology.nodes, nodes.tolist(), strict=True):
        there = topology.nodes[image]
        if (node.kind, node.multicast, node.reduces) != (there.kind, there.multicast, there.reduces):
            return False
        if node.aggregator != there.aggregator:
            return False
    if max(collective.members) >= len(topology.nodes):
        return False
    rank_at = np.full(len(topology.nodes), -1)
    rank_at[list(collective.members)] = np.arange(collective.ranks)
    ranks = rank_at[nodes[list(collective.members)]]
    if ranks.min() < 0:
        return False
    image = Contract(collective.kind, collective.ranks, collective.root).moved(ranks)
    block, weight = collective.chunks.block, collective.chunks.weight
    if image is None or not np.array_equal(block[chunks], image[block]):
        return False
    return bool(np.array_equal(weight[chunks], weight))


def _components(points: int, moves: list[_Numbers]) -> _Numbers:
    """Per point, the least point of its orbit: minima propagate between neighbours until nothing changes."""
    least = np.arange(points)
    while True:
        before = least
        for move in moves:
            least = np.minimum(least, least[move])
            spread = least.copy()
            np.minimum.at(spread, move, least)
            least = spread
        least = least[least]
        if np.array_equal(least, before):
            return least


def _order(moves: list[_Numbers], component: _Numbers, pivot: int) -> int | None:
    """The order of the group; None if some element other than the identity fixes the pivot."""
    place = {pivot: 0}
    walk: list[tuple[int, int]] = [(0, 0)]  # generator, and the earlier place that it was applied to
    points = [pivot]
    steps = [move.tolist() for move in moves]
    for number, point in enumerate(points):
        for generator, step in enumerate(steps):
            image = step[point]
            if image not in place:
                place[image] = len(points)
                points.append(image)
                walk.append((generator, number))
    starts = np.r_[ascending(component), [move[pivot] for move in moves]].astype(np.int64)
    if len(points) * len(starts) > _MOST_ENTRIES:
        return None
    written = np.empty((len(points), len(starts)), np.int64)
    written[0] = starts
    for number in range(1, len(points)):
        generator, earlier = walk[number]
        written[number] = moves[generator][written[earlier]]
    for move in moves:
        onwards = [place[image] for image in move[points].tolist()]
        if not np.array_equal(move[written], written[onwards]):
            return None
    return len(points)
