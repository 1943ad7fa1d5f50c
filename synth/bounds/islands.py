"""Islands: node sets that hang together by links faster than some bandwidth: boxes of a cluster, halves of a dumbbell.

box ═══ box          drop the links of at most the bandwidth of ─── :
 │       │           each component that holds members is an island, and a natural side of a cut
box ═══ box
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from synth.bounds.arcs import Arcs, Int32s


def island_labels(graph: Arcs) -> Iterator[Int32s]:
    """Per bandwidth that occurs, slowest first, and node: the number of the component by faster links that it is in."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    kinds = sorted(set(graph.capacity))
    number = {capacity: kind for kind, capacity in enumerate(kinds)}
    kind = np.asarray([number[capacity] for capacity in graph.capacity])
    for floor in range(len(kinds)):
        fast = kind > floor
        ones = np.ones(int(fast.sum()), np.int8)
        wires = coo_array((ones, (graph.tails[fast], graph.heads[fast])), shape=(graph.nodes, graph.nodes))
        yield connected_components(wires, directed=False)[1]


def islands(graph: Arcs, members: NDArray[np.int64]) -> Iterator[list[NDArray[np.bool_]]]:
    """Per bandwidth the islands that hold members, where there are at least two; the same islands once only."""
    seen: set[bytes] = set()
    for labels in island_labels(graph):
        inhabited = np.unique(labels[members])
        whole = [(labels == label) & graph.usable for label in inhabited.tolist()]
        key = np.asarray(labels[members]).tobytes()
        if len(whole) > 1 and key not in seen:
            seen.add(key)
            yield whole
