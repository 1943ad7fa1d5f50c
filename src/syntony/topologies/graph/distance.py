"""Distances between ranks: in hops (moves of data from one rank to the next) and in links.

Switches and NICs hold no data, so a path through them is one hop, however many links it has: two ranks on one switch
are one hop and two links apart.

The largest distance is found without looking at all pairs. Ranks in one orbit of the declared symmetry see the same
distances, so one of each orbit is considered. Searches from a few of them, forwards and backwards, bound the largest
distances of all others (Takes and Kosters, 2011), and ranks that cannot be the furthest are left out. The rest are
searched from all at once, 64 sources to a machine word.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from syntony.topologies.graph.symmetry import orbits
from syntony.topologies.topology import Topology

_SINGLE_SEARCHES = 16  # sources searched one by one
_BLOCK = 1024  # sources searched together


def diameter(topology: Topology) -> int | None:
    """The most hops between two ranks; None if some rank cannot reach another."""
    return None if cut_off(topology) else _furthest(topology, _hop_ends(topology))


def longest_route(topology: Topology) -> int | None:
    """The most links between two ranks, along paths of the fewest links; None if some rank cannot reach another."""
    return None if cut_off(topology) else _furthest(topology, [True] * len(topology.nodes))


def cut_off(topology: Topology) -> tuple[int, int] | None:
    """The first pair (source, destination) of ranks without a path; None if there is a path between any two."""
    hops = _hop_ends(topology)
    for destination, distance in enumerate(_distances(topology, 0, hops)[: topology.ranks]):
        if distance is None:
            return 0, destination
    # Rank 0 reaches all ranks, so every rank that reaches rank 0 reaches all ranks.
    for source, distance in enumerate(_distances(topology, 0, hops, backwards=True)[: topology.ranks]):
        if distance is None:
            return source, 0
    return None


def _hop_ends(topology: Topology) -> list[bool]:
    """Per node whether a step to it counts as a hop."""
    return [node < topology.ranks for node in range(len(topology.nodes))]


def _distances(topology: Topology, start: int, counts: Sequence[bool], backwards: bool = False) -> list[int | None]:
    """From `start` to every node (`backwards`: from every node to `start`), by breadth-first search.

    A step to a node for which `counts` is false has length 0: such nodes are visited before those behind them.
    """
    distances: list[int | None] = [None] * len(topology.nodes)
    waiting = deque([(start, 0)])
    while waiting:
        node, distance = waiting.popleft()
        if distances[node] is not None:
            continue
        distances[node] = distance
        if backwards:
            step = 1 if counts[node] else 0
            further = [(link.src, step) for link in topology.links_to(node)]
        else:
            further = [(link.dst, 1 if counts[link.dst] else 0) for link in topology.links_from(node)]
        for neighbour, step in further:
            if distances[neighbour] is None:
                if step:
                    waiting.append((neighbour, distance + 1))
                else:
                    waiting.appendleft((neighbour, distance))
    return distances


def _furthest(topology: Topology, counts: Sequence[bool]) -> int:
    """The largest distance between two ranks, each of which can reach the other."""
    ranks = topology.ranks
    left = [orbit[0] for orbit in orbits(len(topology.nodes), topology.generators) if orbit[0] < ranks]
    most: dict[int, int] = dict.fromkeys(left, ranks * len(topology.nodes))
    least: dict[int, int] = dict.fromkeys(left, 0)
    furthest = 0
    for search in range(_SINGLE_SEARCHES):
        if not left:
            return furthest
        chosen = min(left, key=least.__getitem__) if search % 2 else max(left, key=most.__getitem__)
        there = [distance or 0 for distance in _distances(topology, chosen, counts)]
        back = [distance or 0 for distance in _distances(topology, chosen, counts, backwards=True)]
        reach = max(there[:ranks])
        furthest = max(furthest, reach)
        for rank in left:
            most[rank] = min(most[rank], back[rank] + reach)
            least[rank] = max(least[rank], back[rank], reach - there[rank])
        left = [rank for rank in left if rank != chosen and most[rank] > furthest]
    blocks = (left[i : i + _BLOCK] for i in range(0, len(left), _BLOCK))
    return max((furthest, *(_furthest_from(topology, block, counts) for block in blocks)))


def _furthest_from(topology: Topology, sources: Sequence[int], counts: Sequence[bool]) -> int:
    """The largest distance from any of `sources` to any rank; breadth-first search with a bit per source."""
    begins, ends = topology.ends
    order = np.argsort(ends, kind="stable")
    begins, ends = begins[order], ends[order]
    arrivals, first = np.unique(ends, return_index=True)
    counted = np.array(counts)
    shape = len(topology.nodes), (len(sources) + 63) // 64
    wave = np.zeros(shape, dtype=np.uint64)
    for bit, source in enumerate(sources):
        wave[source, bit // 64] |= np.uint64(1) << np.uint64(bit % 64)
    seen = wave.copy()
    distance = furthest = 0
    while wave.any():
        distance += 1
        landed = np.zeros(shape, dtype=np.uint64)
        while wave.any():
            wave = _stepped(wave, begins, first, arrivals) & ~seen
            seen |= wave
            landed |= wave
            wave[counted] = 0  # nodes that do not count are passed within this distance
        landed[~counted] = 0
        if landed[: topology.ranks].any():
            furthest = distance
        wave = landed
    return furthest


def _stepped(
    wave: npt.NDArray[np.uint64],
    begins: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    arrivals: npt.NDArray[np.int64],
) -> npt.NDArray[np.uint64]:
    """One link further: per node, the union of the bits of all nodes with a link to it."""
    result = np.zeros_like(wave)
    result[arrivals] = np.bitwise_or.reduceat(wave[begins], first, axis=0)
    return result
