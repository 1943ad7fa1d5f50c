"""Islands: node sets connected by links faster than some bandwidth, such as the boxes of a cluster.

box ═══ box          drop the links of at most the bandwidth of ─── :
 │       │           each component with members is an island, and a good candidate for a side of a cut
box ═══ box
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from syntony.synth.bounds.arcs import Arcs

Labels = NDArray[np.int64]
"""Per node the number of the set it is in; -1: in none. The sets are 0, 1, .. and do not overlap."""


def islands(graph: Arcs, members: NDArray[np.int64]) -> Iterator[Labels]:
    """Per bandwidth that occurs, slowest first, the islands with members, if there are two or more."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    kinds = sorted(set(graph.capacity))
    number = {capacity: kind for kind, capacity in enumerate(kinds)}
    kind = np.asarray([number[capacity] for capacity in graph.capacity])
    for floor in range(len(kinds)):
        fast = kind > floor
        ones = np.ones(int(fast.sum()), np.int8)
        wires = coo_array((ones, (graph.tails[fast], graph.heads[fast])), shape=(graph.nodes, graph.nodes))
        _, component = connected_components(wires, directed=False)
        inhabited = np.unique(component[members])
        if len(inhabited) > 1:
            island = np.full(int(component.max()) + 1, -1)
            island[inhabited] = np.arange(len(inhabited))
            yield np.where(graph.usable, island[component], -1)


def exits(graph: Arcs, labels: Labels) -> list[int]:
    """Per set the capacity of the arcs that leave it."""
    of_tail, of_head = labels[graph.tails], labels[graph.heads]
    out = [0] * (int(labels.max()) + 1)
    for arc in np.flatnonzero((of_tail >= 0) & (of_tail != of_head)).tolist():
        out[of_tail[arc]] += graph.capacity[arc]
    return out
