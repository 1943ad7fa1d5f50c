"""Trees as columns, and the schedule in which each carries a chunk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd

import numpy as np
from numpy.typing import NDArray

from syntony import _solve
from syntony.base.rows import pieces
from syntony.synth.model.collective import MOST_WEIGHT, ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.routes import MAX_PARALLEL, routes_between
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.simulation.program_simulator import executor_slice
from syntony.topologies.topology import Topology

ENGINE = "forest"
ROUNDING = 1e-9
"""Times that differ by this part only are equal."""

MOST_COUNTED = 1 << 62
"""The greatest sum of weights, such as the number of all trees or the capacity of a link: 64 bits, with room."""

Integers = NDArray[np.signedinteger]


@dataclass(frozen=True, eq=False)
class Trees:
    """T trees over n ranks, by root; a tree's edges are in an order in which each source has been reached before.

    root, weight        (T,)      whose block, and how much of it
    src, dst, route     (T, n-1)  of every edge; the route is an index
    offset, link                  route r takes link[offset[r]:offset[r+1]] of the topology
    turns                         steps from hop to hop, rounded down: the turns of a lane after which a slice of a long
                                  message goes on (simulation/moves.py)
    """

    root: Integers
    weight: Integers
    src: Integers
    dst: Integers
    route: Integers
    offset: Integers
    link: Integers
    turns: float = 1.0

    def cut(self, tree: Integers, weight: Integers) -> Trees:
        """Cuts trees: piece i is a copy of tree[i] with weight[i]."""
        edges = {name: getattr(self, name)[tree] for name in ("root", "src", "dst", "route")}
        return replace(self, weight=weight, **edges)

    def depths(self) -> Integers:
        """(T, n-1): the distance from the root at which each edge begins."""
        src, dst = (np.ascontiguousarray(end, np.int64).reshape(-1) for end in (self.src, self.dst))
        return _solve.edge_depths(self.src.shape[1], src, dst).reshape(self.src.shape)

    def steps(self) -> Integers:
        """(T, n-1): the step of each edge."""
        depths = self.depths()
        return (depths * self.turns).astype(depths.dtype)

    def in_time(self, topology: Topology) -> Trees:
        """The trees of a broadcast with turns such that a lane's turn does not come before its slice.

        A turn is as long as the fullest link needs for a slice of all trees. The slice goes on once it has arrived,
        which is later by the latency of a hop. Where lanes carry several trees at different depths, turns that come too
        early make them wait for each other.
        """
        if not self.route.size:
            return self
        route, alpha = self.route.reshape(-1), np.asarray([link.alpha for link in topology.links])
        latency = np.add.reduceat(alpha[self.link], self.offset[:-1])[route].max()
        share = int(self.weight.max()) / int(self.weight.sum())
        turn = self.seconds_per_byte(topology) * executor_slice(self.src.shape[1] + 1) / share
        return replace(self, turns=1 + latency / turn)

    def seconds_per_byte(self, topology: Topology) -> float:
        """Of a broadcast along the trees: for which its fullest link is busy."""
        route = self.route.reshape(-1)
        hops = np.diff(self.offset)[route]
        weight = np.repeat(np.repeat(self.weight, self.route.shape[1]), hops)
        bandwidth = np.asarray([float(link.bandwidth) for link in topology.links])
        load = np.bincount(pieces(self.link, self.offset[route], hops), weight, minlength=len(bandwidth))
        return float((load / int(self.weight.sum()) / bandwidth).max())


def spread(topology: Topology, collective: Collective, trees: Trees) -> Schedule:
    """The schedule in which each tree carries a chunk, in the steps of its edges."""
    block = np.zeros_like(trees.root) if collective.kind == "broadcast" else trees.root
    cut = replace(collective, chunks=ChunkTable(block, trees.weight))
    step = trees.steps().reshape(-1)
    # Short numbers are sorted by radix, which is much faster.
    order = np.argsort(step.astype(np.int16) if step.max(initial=0) < 2**15 else step, kind="stable")
    chunk = np.repeat(np.arange(len(trees.root)), trees.src.shape[1])[order]
    route = trees.route.reshape(-1)[order]
    hops = np.diff(trees.offset)[route]
    offset = np.concatenate(([0], np.cumsum(hops)))
    within = np.arange(offset[-1]) - np.repeat(offset[:-1], hops)
    transfers = Transfers(
        chunk,
        chunk,
        trees.src.reshape(-1)[order],
        trees.dst.reshape(-1)[order],
        step[order],
        offset,
        trees.link[np.repeat(trees.offset[route], hops) + within],
    )
    return Schedule(topology, cut, ValueBuilder.of_chunks(cut).build(), transfers, engine=ENGINE)


def common_weights(one: Trees, other: Trees) -> tuple[Trees, Trees]:
    """Both forests with trees cut so that their weights agree, tree by tree.

    one     |--- 3 ---|- 2 -|        |- 2 -| 1 |- 2 -|
    other   |- 2 -|--- 3 ---|        |- 2 -| 1 |- 2 -|       both after it

    Where weights would be larger than MOST_WEIGHT, cuts are rounded, those between roots excepted: their blocks keep
    their shares.
    """
    scale = Fraction(int(one.weight.sum()), int(other.weight.sum()))  # trees per unit, there and here
    first = np.flatnonzero(np.diff(one.root, prepend=-1))
    blocks = [int(total) * scale.denominator for total in np.add.reduceat(one.weight, first)]
    uncounted = sum(blocks) >= MOST_COUNTED
    exact = object if uncounted else np.int64
    ends = [
        np.cumsum(one.weight.astype(exact) * scale.denominator),
        np.cumsum(other.weight.astype(exact) * scale.numerator),
    ]
    if uncounted or np.diff(np.union1d(*ends), prepend=0).max() > MOST_WEIGHT:
        unit = gcd(*blocks)
        fine = MOST_WEIGHT // (max(blocks) // unit)
        ends = [((end.astype(object) * fine + unit // 2) // unit).astype(np.int64) for end in ends]
    cuts = np.union1d(*ends)
    weight = np.diff(cuts, prepend=0)
    return one.cut(np.searchsorted(ends[0], cuts), weight), other.cut(np.searchsorted(ends[1], cuts), weight)


def on_routes(
    network: Network, weight: Integers, parent: Integers, way: Integers, parallel: int = MAX_PARALLEL
) -> Trees | None:
    """Trees of a broadcast; None if no route leads to some rank from the one before it.

    weight   (T,)
    parent   (T, ranks)  from which rank each one receives, -1 for the root
    way      (T, ranks)  over which of the routes between both, of the first `parallel`; counted round and round
    """
    trees, ranks = parent.shape
    depth = np.zeros_like(parent)
    at = parent
    while (at >= 0).any():
        depth += at >= 0
        at = np.where(at >= 0, np.take_along_axis(parent, np.maximum(at, 0), 1), -1)
    dst = np.argsort(depth, axis=1, kind="stable")[:, 1:]
    src, number = (np.take_along_axis(column, dst, 1) for column in (parent, way))
    pairs, pair = pairs_of(src, dst, ranks)
    routes = routes_between(network, *pairs, parallel)
    count = np.diff(routes.first)
    if not count.all():
        return None
    route = (routes.first[pair] + number.reshape(-1) % count[pair]).reshape(src.shape)
    return Trees(np.full(trees, network.collective.root), weight, src, dst, route, routes.offset, routes.link)


def pairs_of(src: Integers, dst: Integers, ranks: int) -> tuple[tuple[Integers, Integers], Integers]:
    """The different pairs of ranks, and the one of each edge."""
    pair, of_edge = np.unique(src.astype(np.int64).reshape(-1) * ranks + dst.reshape(-1), return_inverse=True)
    return (pair // ranks, pair % ranks), of_edge
