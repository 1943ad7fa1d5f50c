"""A Topology that explains what a probe measured.

    cluster whose parts share bandwidth                cluster whose parts do not

              switch                                    part ── part
             /  |  \\    bandwidth: what a part              \\    /     bandwidth: of each pair alone
         part part part  moves at once                       part

A part that sends to several others at once shows which of the two it is: if each message is as fast as when sent alone,
every pair of parts has a link of its own; if not, they share. (Blink, Wang et al., MLSys'20, asks the driver instead;
a network has none.) Two parts get a direct link. A cluster of direct links inside a larger one is connected to it
through a NIC.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np

from syntony.topologies.probed.locality import Cluster
from syntony.topologies.probed.measurements import Measurements
from syntony.topologies.topology import Link, Node, NodeKind, Topology

OWN_WIRES = 0.8
"""Parts have links of their own if simultaneous messages reach this share of the sum of their rates alone."""


def explain(measurements: Measurements, root: Cluster, name: str = "probed") -> Topology:
    """The topology, with ranks in order. Needs `measurements.crossings` of every cluster but the root."""
    return _Builder(measurements, name).build(root)


class _Builder:
    def __init__(self, measurements: Measurements, name: str) -> None:
        self._measured = measurements
        self._name = name
        self._nodes = [Node(rank, "rank", f"rank{rank}") for rank in range(measurements.ranks)]
        self._links: list[Link] = []

    def build(self, root: Cluster) -> Topology:
        self._inside(root)
        return Topology(self._name, tuple(self._nodes), tuple(self._links))

    def _inside(self, cluster: Cluster) -> tuple[int, float]:
        """Adds the links of the cluster. Returns the node that connects it, and the alpha from its ranks to it."""
        if not cluster.parts:
            return cluster.ranks[0], 0.0
        gates = [self._inside(part) for part in cluster.parts]
        alpha = float(np.median([self._alpha(one, other) for one, other in combinations(cluster.parts, 2)]))
        deepest = max(depth for _, depth in gates)
        hop = max(alpha / 2 - deepest, 0.0)
        outermost = len(cluster.ranks) == self._measured.ranks
        if not self._has_own_wires(cluster):
            switch = self._node("switch", f"switch{len(self._nodes)}")
            for part, (gate, _) in zip(cluster.parts, gates, strict=True):
                self._cable(gate, switch, part, hop)
            return switch, deepest + hop
        for (one, (gate, _)), (other, (far, _)) in combinations(zip(cluster.parts, gates, strict=True), 2):
            for src, dst, here, there in ((gate, far, one, other), (far, gate, other, one)):
                self._link(
                    src, dst, max(alpha - 2 * deepest, 0.0), self._bandwidth(here, there, len(cluster.parts) - 1)
                )
        if outermost:
            return gates[0][0], deepest
        nic = self._node("nic", f"nic{len(self._nodes)}")
        crossing = self._measured.crossings[cluster.ranks]
        for gate, _ in gates:
            self._link(gate, nic, 0.0, crossing.out)
            self._link(nic, gate, 0.0, crossing.into)
        return nic, deepest

    def _has_own_wires(self, cluster: Cluster) -> bool:
        if len(cluster.parts) == 2:
            return True
        reached = [
            crossing.out / crossing.alone
            for part in cluster.parts
            if (crossing := self._measured.crossings[part.ranks])
        ]
        return float(np.median(reached)) >= OWN_WIRES

    def _alpha(self, one: Cluster, other: Cluster) -> float:
        return float(np.median([self._measured.alpha[a, b] for a, b in product(one.ranks, other.ranks)]))

    def _bandwidth(self, one: Cluster, other: Cluster, wires: int) -> float:
        """The bandwidth of the link from one part to another, if the part has `wires` such links."""
        if len(one.ranks) == len(other.ranks) == 1:
            return float(self._measured.bandwidth[one.ranks[0], other.ranks[0]])
        crossings = self._measured.crossings
        return min(crossings[one.ranks].out, crossings[other.ranks].into) / wires

    def _cable(self, gate: int, switch: int, part: Cluster, alpha: float) -> None:
        crossing = self._measured.crossings[part.ranks]
        self._link(gate, switch, alpha, crossing.out)
        self._link(switch, gate, alpha, crossing.into)

    def _link(self, src: int, dst: int, alpha: float, bandwidth: float) -> None:
        self._links.append(Link(len(self._links), src, dst, alpha, Fraction(max(1, round(bandwidth)))))

    def _node(self, kind: NodeKind, name: str) -> int:
        self._nodes.append(Node(len(self._nodes), kind, name))
        return self._nodes[-1].id
