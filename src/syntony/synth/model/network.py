"""Network: the part of a topology that a collective can use, and distances in it.

Only members of the collective run its Program, so only they relay; other ranks carry nothing. What remains are the
members, the switches and NICs, and the links among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from math import gcd, lcm

import numpy as np
from numpy.typing import NDArray

from syntony._solve import ShortestPaths
from syntony.synth.model.collective import Collective, CollectiveError
from syntony.topologies.topology import Link, Topology


@dataclass(frozen=True)
class Network:
    """`topology` as the members of `collective` see it. Raises CollectiveError if a member is not one of its ranks."""

    topology: Topology
    collective: Collective

    def __post_init__(self) -> None:
        ranks = self.topology.ranks
        if max(self.collective.members) >= ranks:
            raise CollectiveError(
                f"the collective has a member on rank {max(self.collective.members)}, "
                f"but {self.topology.name} has only ranks 0..{ranks - 1}"
            )

    @cached_property
    def usable(self) -> tuple[bool, ...]:
        """Per node, whether the collective may use it."""
        members = set(self.collective.members)
        return tuple(node.kind != "rank" or node.id in members for node in self.topology.nodes)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Links between usable nodes."""
        return tuple(link for link in self.topology.links if self.usable[link.src] and self.usable[link.dst])

    @cached_property
    def hops(self) -> NDArray[np.float64]:
        """(ranks, ranks) least number of messages between ranks of the collective; infinite if there is no path."""
        ends = np.asarray([(link.src, link.dst) for link in self.links], np.int32).reshape(-1, 2)
        is_rank = np.asarray([node.kind == "rank" for node in self.topology.nodes])
        tails, heads = np.ascontiguousarray(ends[:, 0]), np.ascontiguousarray(ends[:, 1])
        paths = ShortestPaths(len(is_rank), tails, heads, is_rank[tails].astype(np.float64))
        members = np.asarray(self.collective.members)
        return np.asarray([paths.distances(member)[members] for member in self.collective.members])


def round_bandwidth(topology: Topology) -> Fraction:
    """The greatest bandwidth that divides every link's: link capacities per round are multiples of it."""
    bandwidths = {link.bandwidth for link in topology.links}
    if not bandwidths:
        return Fraction(1)
    denominator = reduce(lcm, (bandwidth.denominator for bandwidth in bandwidths))
    return Fraction(reduce(gcd, (int(bandwidth * denominator) for bandwidth in bandwidths)), denominator)
