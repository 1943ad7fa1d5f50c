"""Wiring: how a family puts a topology together, node by node and cable by cable."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction

from syntony.topologies.topology import Link, Node, NodeKind, Permutation, Topology, TopologyError

Place = tuple[float, float]

ABSTRACT_BANDWIDTH = Fraction(10**9)
"""Bytes/s of a link in families that do not model particular hardware."""
ABSTRACT_ALPHA = 1e-6
"""Seconds of latency of a link in families that do not model particular hardware."""

# A mistyped size is refused within a second, before it fills the memory.
_MOST_NODES = 100_000
_MOST_LINKS = 2_000_000


class Wiring:
    """Collects nodes and links, numbers them in order, and makes the Topology. Ranks are added first.

    Families place all of their nodes for drawings; without places, the drawing chooses.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[Node] = []
        self._links: list[Link] = []

    @property
    def size(self) -> int:
        """Nodes added so far."""
        return len(self._nodes)

    def rank(self, place: Place | None = None) -> int:
        return self._node("rank", f"rank{len(self._nodes)}", place)

    def switch(self, name: str, place: Place | None = None, *, multicast: bool = False, reduces: bool = False) -> int:
        return self._node("switch", name, place, multicast, reduces)

    def nic(self, name: str, place: Place | None = None) -> int:
        return self._node("nic", name, place)

    def cable(self, one: int, other: int, bandwidth: Fraction, alpha: float) -> None:
        """A full-duplex connection: one link each way, each of `bandwidth` bytes/s and `alpha` seconds."""
        self.link(one, other, bandwidth, alpha)
        self.link(other, one, bandwidth, alpha)

    def link(self, src: int, dst: int, bandwidth: Fraction, alpha: float) -> None:
        """One direction of a connection whose other direction differs or is missing."""
        if len(self._links) >= _MOST_LINKS:
            raise TopologyError(
                f"{self._name}: more than {_MOST_LINKS} links; a topology of that size is not supported"
            )
        self._links.append(Link(len(self._links), src, dst, alpha, bandwidth))

    def topology(self, generators: Iterable[Permutation] = ()) -> Topology:
        """The finished topology; the identity and repeated generators are dropped."""
        identity = tuple(range(len(self._nodes)))
        distinct = tuple(dict.fromkeys(generator for generator in generators if generator != identity))
        return Topology(self._name, tuple(self._nodes), tuple(self._links), distinct)

    def _node(
        self, kind: NodeKind, name: str, place: Place | None, multicast: bool = False, reduces: bool = False
    ) -> int:
        if len(self._nodes) >= _MOST_NODES:
            raise TopologyError(
                f"{self._name}: more than {_MOST_NODES} nodes; a topology of that size is not supported"
            )
        drawn = (round(place[0], 3), round(place[1], 3)) if place else None
        self._nodes.append(Node(len(self._nodes), kind, name, multicast, reduces, drawn))
        return self._nodes[-1].id


def circle(count: int) -> Iterator[Place]:
    """Points on a circle, clockwise from the top, neighbours 1 apart; a single point is the centre."""
    radius = 0.5 / math.sin(math.pi / count) if count > 1 else 0.0
    for i in range(count):
        angle = 2 * math.pi * i / count
        yield radius * math.sin(angle), radius * math.cos(angle)


def spread(left: float, right: float, count: int, pitch: float = 0.0) -> list[float]:
    """`count` coordinates, evenly around the middle of `left` .. `right`, at least `pitch` apart."""
    step = max((right - left) / count, pitch)
    return [(left + right) / 2 + (i - (count - 1) / 2) * step for i in range(count)]


def require(holds: bool, sentence: str) -> None:
    """Raises TopologyError with the sentence unless `holds` is true."""
    if not holds:
        raise TopologyError(sentence)
