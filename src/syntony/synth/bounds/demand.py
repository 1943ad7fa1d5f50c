"""The demand of a collective, independent of its chunks: weights of blocks, and the symmetry of both.

A generator of the topology's symmetry is one of the collective's too when it maps members to members, the root to
itself and blocks to blocks of equal weight. Members in one orbit of these have the same bounds, so one of them is
enough.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.topologies.graph.symmetry import orbits
from syntony.topologies.topology import Permutation


def block_weights(collective: Collective) -> NDArray[np.int64]:
    """Units of chunk weight per block; for all_to_all a square table, row source, column destination."""
    weights = collective.chunks.weight.astype(np.int64)
    if len(weights) > collective.blocks:
        block = collective.chunks.block
        weights = np.add.reduceat(weights, np.flatnonzero(np.diff(block, prepend=-1)))
    return weights.reshape(collective.ranks, -1) if collective.kind == "all_to_all" else weights


def fitting_generators(network: Network) -> list[Permutation]:
    """The topology's generators that are symmetries of the collective."""
    collective, nodes = network.collective, len(network.topology.nodes)
    weights = block_weights(collective)
    even = int(weights.min()) == int(weights.max())
    members = np.asarray(collective.members)
    position = np.full(nodes, -1)
    position[members] = np.arange(len(members))
    fitting = []
    for generator in network.topology.generators:
        image = position[np.asarray(generator)[members]]
        if image.min() < 0 or (collective.rooted and image[collective.root] != collective.root):
            continue
        if not even:
            moved = weights[np.ix_(image, image)] if weights.ndim == 2 else weights[image]
            if not np.array_equal(moved, weights):
                continue
        fitting.append(generator)
    return fitting


def member_orbits(network: Network, generators: list[Permutation]) -> list[list[int]]:
    """The members' topology ranks, in orbits under the generators (which must fit)."""
    if not generators:
        return [[member] for member in sorted(network.collective.members)]
    members = set(network.collective.members)
    return [orbit for orbit in orbits(len(network.topology.nodes), generators) if orbit[0] in members]
