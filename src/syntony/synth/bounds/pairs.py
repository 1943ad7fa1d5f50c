"""Node pairs that are joined by links, and their orbits: the wires of a linear program, one variable for each.

Parallel links between two nodes count as one with their total bandwidth, and under a symmetry all pairs of an orbit
have the same value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony.synth.bounds.arcs import Arcs, Int32s
from syntony.topologies.topology import Permutation


@dataclass(frozen=True)
class Pairs:
    """Node pairs that are joined by links; parallel links count as one with their total bandwidth.

    of_arc    the pair of each arc
    orbit     the orbit of each pair under the symmetry at hand
    """

    tails: Int32s
    heads: Int32s
    capacity: tuple[int, ...]
    of_arc: NDArray[np.int64]
    orbit: NDArray[np.int64]

    @staticmethod
    def of(arcs: Arcs, generators: Sequence[Permutation]) -> Pairs:
        keys, of_arc = np.unique(arcs.tails.astype(np.int64) * arcs.nodes + arcs.heads, return_inverse=True)
        tails, heads = keys // arcs.nodes, keys % arcs.nodes
        capacity = [0] * len(keys)
        for pair, amount in zip(of_arc.tolist(), arcs.capacity, strict=True):
            capacity[pair] += amount
        orbit = pair_orbits(arcs.nodes, tails, heads, generators)
        return Pairs(tails.astype(np.int32), heads.astype(np.int32), tuple(capacity), of_arc, orbit)


def pair_orbits(
    nodes: int, tails: NDArray[np.int64], heads: NDArray[np.int64], generators: Sequence[Permutation]
) -> NDArray[np.int64]:
    """The number of each node pair's orbit. The pairs ascend, and the generators map them onto each other."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    keys = tails * nodes + heads
    images = [np.arange(len(keys))]
    for generator in generators:
        move = np.asarray(generator, np.int64)
        images.append(np.searchsorted(keys, move[tails] * nodes + move[heads]))
    here, there = np.tile(np.arange(len(keys)), len(images)), np.concatenate(images)
    graph = coo_array((np.ones(len(here), np.int8), (here, there)), shape=(len(keys), len(keys)))
    return np.asarray(connected_components(graph, directed=False)[1], np.int64)
