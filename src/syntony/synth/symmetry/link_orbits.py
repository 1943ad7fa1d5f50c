"""Orbits of links under a topology's automorphisms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from syntony.topologies.topology import Permutation, Topology

Integers = NDArray[np.signedinteger]


def link_orbits(topology: Topology, generators: Sequence[Permutation]) -> Integers:
    """The number of every link's orbit if the generators move the nodes."""
    return orbits_under(len(topology.links), [topology.link_permutation(generator) for generator in generators])


def orbits_under(points: int, permutations: Iterable[Sequence[int] | Integers]) -> Integers:
    """The number of every point's orbit: connected components."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    images = [np.asarray(permutation, np.int64) for permutation in permutations]
    here, there = np.tile(np.arange(points), len(images)), np.concatenate([np.zeros(0, np.int64), *images])
    graph = coo_array((np.ones(len(here), np.int8), (here, there)), shape=(points, points))
    return np.asarray(connected_components(graph, directed=False)[1], np.int64)
