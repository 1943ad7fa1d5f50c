"""Recomputes the bounds claimed by a Schedule from the topology and the collective, using only their witnesses.

    latency      the hops (or alphas) between the two ranks of the witness, by an independent search
    Cut          what must cross it, over the bandwidth of all links that cross it
    Partition    of all_reduce: 2 (k - 1) messages per byte over the links that leave (or enter) the k parts; switches
                 that turn one message into several (or several into one) must be inside the parts
    Prices       each demand times its cheapest path, over what all links earn; only for demands that are neither copied
                 nor summed on their way (one source, one destination)

A witness proves its number or it does not; that no better bound exists is not claimed.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from fractions import Fraction
from math import isclose, lcm

import numpy as np

from syntony.synth.checker.contract import Contract
from syntony.synth.checker.verdict import FaultError, Verdict
from syntony.synth.model.bound import Cut, Distance, Partition, Prices, Witness
from syntony.synth.model.schedule import Schedule
from syntony.topologies.topology import Link


def check_bounds(schedule: Schedule) -> None:
    """Raises FaultError if a bound of the schedule does not follow from its witness."""
    if schedule.bounds is None:
        return
    claims = _Claims(schedule)
    latency, throughput = schedule.bounds.latency, schedule.bounds.throughput
    steps = claims.distance(latency.steps_witness, by_alpha=False)
    if latency.steps != steps:
        raise _false(f"{latency.steps} steps at least", f"its witness proves {steps}")
    seconds = claims.distance(latency.seconds_witness, by_alpha=True)
    if not isclose(latency.seconds, seconds, rel_tol=1e-9, abs_tol=1e-15):
        raise _false(f"{latency.seconds} seconds at least", f"its witness proves {seconds}")
    proven = Fraction(0) if throughput.witness is None else claims.rate(throughput.witness)
    if throughput.seconds_per_byte != proven:
        raise _false(f"{throughput.seconds_per_byte} seconds per byte at least", f"its witness proves {proven}")


def _false(claim: str, truth: str) -> FaultError:
    return FaultError(Verdict(valid=False, fault=f"the bound of {claim} is false: {truth}"))


class _Claims:
    def __init__(self, schedule: Schedule) -> None:
        self.topology, self.collective = schedule.topology, schedule.collective
        self.contract = Contract(self.collective.kind, self.collective.ranks, self.collective.root)
        members = set(self.collective.members)
        usable = [node.kind != "rank" or node.id in members for node in self.topology.nodes]
        # Ranks that are not members do not relay.
        self.links = [link for link in self.topology.links if usable[link.src] and usable[link.dst]]
        parts = self.collective.ranks if self.collective.kind == "all_to_all" else 1
        self.unit = Fraction(parts, sum(self.collective.chunks.weight.tolist()))
        """Share of the size per unit of weight; the size is the bytes of the larger of a rank's two buffers."""

    def sources(self, block: int) -> frozenset[int]:
        """The topology's ranks that start with the block."""
        return self._at(self.contract.sources(block))

    def targets(self, block: int) -> frozenset[int]:
        """The topology's ranks that must end with the block."""
        return self._at(self.contract.targets(block))

    def _at(self, ranks: range) -> frozenset[int]:
        return frozenset(self.collective.members[rank] for rank in ranks)

    def distance(self, witness: Distance | None, by_alpha: bool) -> float:
        """What the witness proves: the distance that its chunk must travel; 0 without a witness."""
        if witness is None:
            return 0
        chunks = self.collective.chunks
        if not 0 <= witness.chunk < len(chunks):
            raise _false("latency", f"its witness names chunk {witness.chunk}, which does not exist")
        block = int(chunks.block[witness.chunk])
        sources, targets = self.sources(block), self.targets(block)
        if witness.src not in sources or witness.dst not in targets:
            raise _false("latency", f"its witness's chunk does not go from rank {witness.src} to rank {witness.dst}")
        rank = [node.kind == "rank" for node in self.topology.nodes]
        cost = {link.id: link.alpha if by_alpha else float(rank[link.src]) for link in self.links}
        starts = {witness.src} if self.contract.sums else sources
        return min(self._paths(start, cost).get(witness.dst, float("inf")) for start in starts)

    def _paths(self, start: int, cost: dict[int, float] | dict[int, int]) -> dict[int, float]:
        """Cheapest paths from a node to all others (Dijkstra)."""
        leaving: dict[int, list[Link]] = defaultdict(list)
        for link in self.links:
            leaving[link.src].append(link)
        best: dict[int, float] = {}
        heap: list[tuple[float, int]] = [(0, start)]
        while heap:
            so_far, node = heapq.heappop(heap)
            if node in best:
                continue
            best[node] = so_far
            for link in leaving[node]:
                if link.dst not in best:
                    heapq.heappush(heap, (so_far + cost[link.id], link.dst))
        return best

    def rate(self, witness: Witness) -> Fraction:
        """Seconds per byte of size that the witness proves."""
        added = Fraction(0)
        match witness:
            case Cut():
                nodes = set(witness.nodes)
                crossing = self._leaving([nodes], witness.entering)
                share = self.unit * sum(self._crossing(nodes, witness.entering))
            case Partition():
                crossing = self._leaving([set(part) for part in witness.parts], witness.entering)
                share = self._messages_of_sums(witness)
                added = self._added(witness)
            case Prices():
                return self._priced(witness)
        bandwidth = sum((link.bandwidth for link in crossing), added)
        if not bandwidth:
            raise _false("throughput", "no link crosses its witness")
        return share / bandwidth

    def _leaving(self, parts: list[set[int]], entering: bool) -> list[Link]:
        ends = [((link.dst, link.src) if entering else (link.src, link.dst), link) for link in self.links]
        return [link for part in parts for (inside, outside), link in ends if inside in part and outside not in part]

    def _crossing(self, nodes: set[int], entering: bool) -> list[int]:
        """Weights of the chunks of which a copy or a partial sum must leave (or enter) the node set."""
        inside = np.cumsum([0, *(member in nodes for member in self.collective.members)])
        blocks = np.arange(self.contract.blocks)
        (first, past), (low, high) = self.contract.source_span(blocks), self.contract.target_span(blocks)
        before, beyond = inside[past] - inside[first], inside[high] - inside[low]
        if entering:
            before = past - first - before
        else:
            beyond = high - low - beyond
        # A sum needs every contribution; a copy leaves only if all its holders are on this side.
        must = (beyond > 0) & ((before > 0) if self.contract.sums else (before == past - first))
        chunks = self.collective.chunks
        crossing: list[int] = chunks.weight[must[chunks.block]].tolist()
        return crossing

    def _messages_of_sums(self, witness: Partition) -> Fraction:
        parts = [set(part) for part in witness.parts]
        members = set(self.collective.members)
        homes = [part & members for part in parts]
        if self.collective.kind != "all_reduce" or sum(map(len, homes)) != len(set().union(*homes)):
            raise _false("throughput", "a partition bounds all_reduce only, and its parts must be disjoint")
        if set().union(*homes) != members or not all(homes):
            raise _false("throughput", "each part must hold members, and the parts all of them")
        # Outside the parts, a switch must forward messages one by one, as they are counted.
        inside = set().union(*parts)
        outside = [node for node in self.topology.nodes if node.id not in {*inside, *witness.adders}]
        if any(node.reduces if witness.entering else node.multicast for node in outside):
            raise _false("throughput", "a partition counts messages, which switches that copy or add can save")
        return Fraction(2 * (len(parts) - 1))

    def _added(self, witness: Partition) -> Fraction:
        """Bytes/s that the witness's adders take in: each contribution may save a message that would enter a part."""
        total = Fraction(0)
        for adder in set(witness.adders):
            known = 0 <= adder < len(self.topology.nodes)
            aggregator = self.topology.nodes[adder].aggregator if known else None
            if not witness.entering or aggregator is None or aggregator.rate is None:
                right = "an adder is a switch that adds at a known rate, in a witness of what enters its parts"
                raise _false("throughput", f"its witness names node {adder}; {right}")
            total += aggregator.rate
        return total

    def _priced(self, witness: Prices) -> Fraction:
        blocks = np.arange(self.contract.blocks)
        (first, _), (low, high) = self.contract.source_span(blocks), self.contract.target_span(blocks)
        if self.contract.sums or (high - low > 1).any():
            raise _false("throughput", f"prices do not bound {self.collective.kind}, whose data is copied or summed")
        if any(price < 0 for price in witness.prices):
            raise _false("throughput", "a price is negative")
        whole = lcm(*(price.denominator for price in witness.prices))
        cost = {link.id: 0 for link in self.links}
        cost.update((link, int(price * whole)) for link, price in zip(witness.links, witness.prices, strict=True))
        weight = np.zeros(len(blocks), object)  # whole numbers of any size
        np.add.at(weight, self.collective.chunks.block, self.collective.chunks.weight.astype(object))
        members = self.collective.members
        paths: dict[int, dict[int, float]] = {}
        owed = 0
        for source, target, wanted in zip(first.tolist(), low.tolist(), weight.tolist(), strict=True):
            if source not in paths:
                paths[source] = self._paths(members[source], cost)
            owed += wanted * int(paths[source][members[target]])
        earned = sum((cost[link.id] * link.bandwidth for link in self.links), Fraction(0))
        return self.unit * owed / earned if earned else Fraction(0)
