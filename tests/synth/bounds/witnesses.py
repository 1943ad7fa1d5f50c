"""What a bound's witness proves, recomputed from the graph and the meaning of the collective alone.

Nothing here imports from syntony.synth.bounds: a witness is read by its fields, and every number is found again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from fractions import Fraction
from math import lcm
from typing import Any

from syntony.synth.model.collective import Collective
from syntony.topologies.topology import Link, Topology


class Recomputed:
    """A topology as the members of a collective see it."""

    def __init__(self, topology: Topology, collective: Collective) -> None:
        self.topology, self.collective = topology, collective
        self.members = list(collective.members)
        switches = {node.id for node in topology.nodes if node.kind != "rank"}
        self.usable = switches | set(self.members)
        self.links = [link for link in topology.links if link.src in self.usable and link.dst in self.usable]
        weights: dict[int, int] = {}
        for block, weight in zip(collective.chunks.block.tolist(), collective.chunks.weight.tolist(), strict=True):
            weights[block] = weights.get(block, 0) + weight
        total = sum(weights.values())
        # The size is the larger of a rank's two buffers: of all_to_all one rank's blocks, otherwise all blocks.
        per = collective.ranks if collective.kind == "all_to_all" else 1
        self.block = {block: Fraction(weight * per, total) for block, weight in weights.items()}

    def rate(self, witness: Any) -> Fraction:
        """Seconds per byte of the size that the witness proves; asserts that its own numbers are those of the graph."""
        kind = type(witness).__name__
        share, crossing = {"Cut": self._cut, "Partition": self._partition, "Prices": self._prices}[kind](witness)
        bandwidth = sum(crossing, Fraction(0))
        assert (witness.share, witness.bandwidth) == (share, bandwidth)
        return share / bandwidth

    def _cut(self, cut: Any) -> tuple[Fraction, Iterable[Fraction]]:
        inside = set(cut.nodes)
        assert inside <= self.usable
        before = self.usable - inside if cut.entering else inside
        crossing = [link for link in self.links if link.src in before and link.dst not in before]
        assert sorted(cut.links) == [link.id for link in crossing]
        return self.must_leave(before), [link.bandwidth for link in crossing]

    def must_leave(self, before: set[int]) -> Fraction:
        """The share of the size that must get out of the node set, summed or copied on either side as one likes."""
        collective, n = self.collective, self.collective.ranks
        here = [member in before for member in self.members]
        if all(here) or not any(here):
            return Fraction(0)
        root = here[collective.root]
        inside = sum((self.block.get(rank, Fraction(0)) for rank in range(n) if here[rank]), Fraction(0))
        match collective.kind:
            case "all_reduce":
                return Fraction(1)
            case "broadcast":
                return Fraction(int(root))
            case "reduce":
                return Fraction(int(not root))
            case "all_gather":
                return inside
            case "reduce_scatter":
                return 1 - inside
            case "gather":
                return Fraction(0) if root else inside
            case "scatter":
                return 1 - inside if root else Fraction(0)
            case "all_to_all":
                pairs = ((s, d) for s in range(n) for d in range(n) if here[s] and not here[d])
                return sum((self.block[s * n + d] for s, d in pairs), Fraction(0))
        raise AssertionError(collective.kind)

    def _partition(self, partition: Any) -> tuple[Fraction, Iterable[Fraction]]:
        assert self.collective.kind == "all_reduce"
        parts = [set(part) for part in partition.parts]
        homes = [[member for member in self.members if member in part] for part in parts]
        assert all(homes)
        assert sorted(member for home in homes for member in home) == sorted(self.members)
        for node in self.topology.nodes:
            if (node.reduces if partition.entering else node.multicast) and node.id not in partition.adders:
                assert any(node.id in part for part in parts), f"{node.name} can save messages between the parts"
        crossing: list[Link] = []
        for part in parts:
            for link in self.links:
                tail, head = (link.dst, link.src) if partition.entering else (link.src, link.dst)
                if tail in part and head not in part:
                    crossing.append(link)
        assert sorted(partition.links) == sorted(link.id for link in crossing)
        assert partition.entering or not partition.adders
        added = [self.topology.nodes[adder].aggregator.rate for adder in partition.adders]
        return Fraction(2 * (len(parts) - 1)), [link.bandwidth for link in crossing] + added

    def _prices(self, prices: Any) -> tuple[Fraction, Iterable[Fraction]]:
        assert self.collective.kind == "all_to_all"
        price = dict(zip(prices.links, prices.prices, strict=True))
        assert all(value > 0 for value in price.values())
        assert set(price) <= {link.id for link in self.links}
        whole = lcm(*(value.denominator for value in price.values()))
        length = {link.id: int(price.get(link.id, 0) * whole) for link in self.links}
        n, total = self.collective.ranks, Fraction(0)
        for s, source in enumerate(self.members):
            distance = self.distances(source, length)
            weights = [self.block[s * n + d] for d in range(n)]
            if len(set(weights)) == 1:
                total += weights[0] * sum(distance[target] for target in self.members)
            else:
                for weight, target in zip(weights, self.members, strict=True):
                    total += weight * distance[target]
        return total / whole, [value * self.topology.links[link].bandwidth for link, value in price.items()]

    def distances(self, source: int, length: dict[int, Any]) -> dict[int, Any]:
        """By Dijkstra, in whatever numbers the lengths are."""
        leaving: dict[int, list[Link]] = {}
        for link in self.links:
            leaving.setdefault(link.src, []).append(link)
        done: dict[int, Any] = {}
        heap: list[tuple[Any, int]] = [(0, source)]
        while heap:
            here, node = heapq.heappop(heap)
            if node in done:
                continue
            done[node] = here
            for link in leaving.get(node, ()):
                heapq.heappush(heap, (here + length[link.id], link.dst))
        return done

    def farthest(self, by_alpha: bool) -> float:
        """How far the collective's data must travel, over all pairs of ranks that must hear each other."""
        hop = {link.id: int(self.topology.nodes[link.src].kind == "rank") for link in self.links}
        length = {link.id: link.alpha for link in self.links} if by_alpha else hop
        root = self.members[self.collective.root]
        sources = [root] if self.collective.kind in ("broadcast", "scatter") else self.members
        targets = [root] if self.collective.kind in ("reduce", "gather") else self.members
        worst = 0.0
        for source in sources:
            distance = self.distances(source, length)
            worst = max(worst, *(float(distance[target]) for target in targets))
        return worst
