"""Few trees per root: the least time in which k equal trees of every root fit on the links.

The exact optimum may need many trees per root (two DGX A100: 13), and every tree means more messages. In U seconds, a
link of bandwidth b has capacity for floor(U * b) trees. Wanted is the least U for which all trees fit:

        trees fit    no    no    no    yes   yes   yes         the answer changes only where some U * b becomes whole,
        U          ──┴─────┴─────┴─────┴─────┴─────┴──▶        so bisection ends at the exact optimum
                                       here

Trees fit if every cut has enough capacity (Edmonds 1973), so this is the throughput bound with whole capacities in
place of bandwidths. Zhao et al., ForestColl (NSDI'26), with k fixed. Rounded capacities may differ into and out of a
relay, which edge splitting cannot handle; then there is no forest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor

from syntony.synth.bounds.arcs import Arcs
from syntony.synth.bounds.cut import crowded_cut
from syntony.synth.model.network import Network

MOST = 1000
"""Trees per root that may be asked for."""


def fixed_rooms(network: Network, trees: Sequence[int], bound: Fraction) -> list[int]:
    """The number of trees that each link may carry in the least time in which trees[r] from every r fit.

    `bound` is seconds per unit of trees that no packing can beat.
    """
    search = Search(network, trees)
    low, high = Fraction(0), bound
    while not search.fit(high):
        low, high = high, 2 * high
    while True:
        before = search.breakpoint_before(high)
        if before <= low or not search.fit(before):
            return search.rooms(high)
        high = before
        middle = search.breakpoint_to((low + high) / 2)
        if middle <= low:
            low = (low + high) / 2
        elif search.fit(middle):
            high = middle
        else:
            low = middle


class Search:
    """Whether trees fit on the links, or within a time, in seconds per weight of a tree."""

    def __init__(self, network: Network, trees: Sequence[int]) -> None:
        self.arcs = Arcs.of(network)
        self.bandwidths = [link.bandwidth for link in network.links]
        self.kinds = sorted(set(self.bandwidths))
        self.supply = {member: count for member, count in zip(network.collective.members, trees, strict=True) if count}
        self.sinks = network.collective.members

    def rooms(self, time: Fraction) -> list[int]:
        """Trees per link."""
        whole = {bandwidth: floor(time * bandwidth) for bandwidth in self.kinds}
        return [whole[bandwidth] for bandwidth in self.bandwidths]

    def fit(self, time: Fraction) -> bool:
        """Whether all trees fit, not considering relays."""
        return self.suffice(self.rooms(time))

    def suffice(self, rooms: Sequence[int]) -> bool:
        """Whether all trees fit on links that may carry so many, not considering relays."""
        if not self._all_reached(rooms):
            return False
        arcs = replace(self.arcs, capacity=tuple(rooms), unit=Fraction(1))
        cut = crowded_cut(arcs, self.supply, self.sinks, Fraction(1))
        return cut is None or cut.share <= cut.bandwidth

    def _all_reached(self, rooms: Sequence[int]) -> bool:
        """Whether links with capacity lead from every root to every member; other cuts would have infinite load."""
        leaving: dict[int, list[int]] = {}
        for tail, head, room in zip(self.arcs.tails.tolist(), self.arcs.heads.tolist(), rooms, strict=True):
            if room:
                leaving.setdefault(tail, []).append(head)
        for root in self.supply:
            seen = {root}
            stack = [root]
            while stack:
                fresh = set(leaving.get(stack.pop(), ())) - seen
                seen |= fresh
                stack += fresh
            if not seen.issuperset(self.sinks):
                return False
        return True

    def breakpoint_before(self, time: Fraction) -> Fraction:
        """The last time before this one at which a capacity grows; 0 if there is none."""
        return max(Fraction(ceil(time * bandwidth) - 1) / bandwidth for bandwidth in self.kinds)

    def breakpoint_to(self, time: Fraction) -> Fraction:
        """The last time up to this one at which a capacity grows; 0 if there is none."""
        return max(Fraction(floor(time * bandwidth)) / bandwidth for bandwidth in self.kinds)
