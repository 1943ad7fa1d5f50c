"""Which ranks are near each other: the ranks of a host, of a rack, of a pod, found from measured times.

    sorted distances   ▁▁▁▁▁▁▁▁▁▁▁▁ ▅▅▅▅▅▅▅▅▅▅▅▅ ███████      every jump is a level: ranks joined by distances below
                                   ↑ jump       ↑ jump        it (single linkage) are a cluster
                       within a host | a rack | the rest

    clusters                    {0 1 2 3 4 5 6 7}
                           {0 1 2 3}          {4 5 6 7}       the tree that a Topology is made of (network.py)
                           0  1  2  3         4  5  6  7

PLink (Luo et al., MLSys'20) finds locality in a data centre by probing and clustering; here the number of levels
follows from the data. A single slow pair splits no cluster, because other pairs join its ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from syntony.topologies.probed.measurements import Measurements

JUMP = 2.0
"""Distances that differ by less than this factor belong to one level."""


@dataclass(frozen=True)
class Cluster:
    """Ranks that are near each other; `parts` are the clusters within it, none if it is a single rank."""

    ranks: tuple[int, ...]
    parts: tuple[Cluster, ...] = ()

    def walk(self) -> Iterator[Cluster]:
        """Itself and all below it, parents first."""
        yield self
        for part in self.parts:
            yield from part.walk()

    def around(self, a: int, b: int) -> Cluster:
        """The smallest cluster that contains both ranks."""
        for part in self.parts:
            if a in part.ranks and b in part.ranks:
                return part.around(a, b)
        return self


def clusters(measurements: Measurements) -> Cluster:
    """The tree of clusters: its root is all ranks, its leaves are single ranks."""
    count = measurements.ranks
    distance = measurements.distance()
    pairs = sorted((float(distance[a, b]), a, b) for a, b in combinations(range(count), 2))
    nearest: dict[tuple[int, ...], Cluster] = {(rank,): Cluster((rank,)) for rank in range(count)}
    cluster_of = list(range(count))
    for number, (far, a, b) in enumerate(pairs):
        old, new = cluster_of[b], cluster_of[a]
        cluster_of = [new if cluster == old else cluster for cluster in cluster_of]
        last = number + 1 == len(pairs)
        if last or pairs[number + 1][0] > JUMP * far:
            nearest = _gather(nearest, cluster_of)
    return nearest[tuple(range(count))]


def _gather(nearest: dict[tuple[int, ...], Cluster], cluster_of: list[int]) -> dict[tuple[int, ...], Cluster]:
    """One level up: clusters that have been joined become parts of one."""
    labels = np.asarray(cluster_of)
    gathered = {}
    for label in dict.fromkeys(cluster_of):
        ranks = tuple(np.flatnonzero(labels == label).tolist())
        if ranks in nearest:
            gathered[ranks] = nearest[ranks]
        else:
            gathered[ranks] = Cluster(ranks, tuple(part for part in nearest.values() if part.ranks[0] in ranks))
    return gathered
