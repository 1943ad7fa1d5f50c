"""The links that a collective can use, as the columns that the core's graph algorithms take."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from syntony.synth.model.network import Network, round_bandwidth

Int32s = NDArray[np.int32]


@dataclass(frozen=True)
class Arcs:
    """Arc i is link `links[i]`, from node tails[i] to heads[i].

    capacity[i]  its bandwidth in whole `unit`s of bytes/s; Python integers, which no rational bandwidth overflows
    usable       the nodes that the collective may use: all but ranks that are not members
    """

    nodes: int
    usable: NDArray[np.bool_]
    links: tuple[int, ...]
    tails: Int32s
    heads: Int32s
    capacity: tuple[int, ...]
    unit: Fraction

    @staticmethod
    def of(network: Network) -> Arcs:
        """The network's usable links."""
        links, unit = network.links, round_bandwidth(network.topology)
        whole: dict[tuple[int, int], int] = {}
        capacity = []
        for link in links:
            rate = link.bandwidth.as_integer_ratio()  # hashes much faster than the Fraction
            if rate not in whole:
                whole[rate] = int(link.bandwidth / unit)
            capacity.append(whole[rate])
        tails = np.fromiter((link.src for link in links), np.int32, len(links))
        heads = np.fromiter((link.dst for link in links), np.int32, len(links))
        usable = np.asarray(network.usable, bool)
        return Arcs(len(usable), usable, tuple(link.id for link in links), tails, heads, tuple(capacity), unit)

    def reversed(self) -> Arcs:
        """The same links, each the other way round."""
        return Arcs(self.nodes, self.usable, self.links, self.heads, self.tails, self.capacity, self.unit)

    def symmetric(self) -> bool:
        """Whether the bandwidth between any two nodes is the same in both directions."""
        net: dict[tuple[int, int], int] = {}
        for tail, head, capacity in zip(self.tails.tolist(), self.heads.tolist(), self.capacity, strict=True):
            pair, amount = ((tail, head), capacity) if tail < head else ((head, tail), -capacity)
            net[pair] = net.get(pair, 0) + amount
        return not any(net.values())

    def leaving(self, inside: NDArray[np.bool_]) -> list[int]:
        """The arcs that leave the node set."""
        found: list[int] = np.flatnonzero(inside[self.tails] & ~inside[self.heads]).tolist()
        return found

    def bandwidth(self, arcs: list[int]) -> Fraction:
        """Bytes/s of the arcs together."""
        return sum(self.capacity[arc] for arc in arcs) * self.unit
