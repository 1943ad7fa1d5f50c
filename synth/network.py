"""Network: the part of a topology that a collective can use, and distances in it.

Only members of the collective run its Program, so only they relay; ranks that are no members carry nothing. What is
left are the members, the switches and NICs, and the links among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from synth.collective import Collective, CollectiveError
from topologies.topology import Link, Topology


@dataclass(frozen=True)
class Network:
    """`topology` as the members of `collective` see it. Raises CollectiveError for a member that is no rank of it."""

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
        """(ranks, ranks) least number of messages from rank to rank of the collective; infinite where no path leads."""
        is_rank = [node.kind == "rank" for node in self.topology.nodes]
        return self._distances([1.0 if is_rank[link.src] else 0.0 for link in self.links])

    @cached_property
    def alphas(self) -> NDArray[np.float64]:
        """(ranks, ranks) least sum of alphas from rank to rank of the collective, seconds."""
        return self._distances([link.alpha for link in self.links])

    def _distances(self, lengths: list[float]) -> NDArray[np.float64]:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra

        nodes, members = len(self.topology.nodes), np.asarray(self.collective.members)
        best: dict[tuple[int, int], float] = {}
        for link, length in zip(self.links, lengths, strict=True):
            pair = (link.src, link.dst)
            best[pair] = min(length, best.get(pair, length))
        rows, columns = np.asarray(list(best), np.int64).reshape(-1, 2).T
        graph = csr_array((np.asarray(list(best.values())), (rows, columns)), shape=(nodes, nodes))
        found: NDArray[np.float64] = dijkstra(graph, indices=members)[:, members]
        return found
