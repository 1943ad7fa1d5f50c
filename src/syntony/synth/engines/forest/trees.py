"""Trees as columns, and the schedule in which each carries a chunk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from syntony import _solve
from syntony.base.rows import pieces
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.topologies.topology import Topology

ENGINE = "forest"

Integers = NDArray[np.signedinteger]


@dataclass(frozen=True, eq=False)
class Trees:
    """T trees over n ranks, by root; a tree's edges are in an order in which each source has been reached before.

    root, weight        (T,)      whose block, and how much of it
    src, dst, route     (T, n-1)  of every edge; the route is an index
    offset, link                  route r takes link[offset[r]:offset[r+1]] of the topology
    """

    root: Integers
    weight: Integers
    src: Integers
    dst: Integers
    route: Integers
    offset: Integers
    link: Integers

    def cut(self, tree: Integers, weight: Integers) -> Trees:
        """Cuts trees: piece i is a copy of tree[i] with weight[i]."""
        edges = {name: getattr(self, name)[tree] for name in ("root", "src", "dst", "route")}
        return replace(self, weight=weight, **edges)

    def depths(self) -> Integers:
        """(T, n-1): the distance from the root at which each edge begins."""
        src, dst = (np.ascontiguousarray(end, np.int64).reshape(-1) for end in (self.src, self.dst))
        return _solve.edge_depths(self.src.shape[1], src, dst).reshape(self.src.shape)

    def seconds_per_byte(self, topology: Topology) -> float:
        """Of a broadcast along the trees: for which its fullest link is busy."""
        route = self.route.reshape(-1)
        hops = np.diff(self.offset)[route]
        weight = np.repeat(np.repeat(self.weight, self.route.shape[1]), hops)
        bandwidth = np.asarray([float(link.bandwidth) for link in topology.links])
        load = np.bincount(pieces(self.link, self.offset[route], hops), weight, minlength=len(bandwidth))
        return float((load / int(self.weight.sum()) / bandwidth).max())


def spread(topology: Topology, collective: Collective, trees: Trees) -> Schedule:
    """The schedule in which each tree carries a chunk, by depth."""
    block = np.zeros_like(trees.root) if collective.kind == "broadcast" else trees.root
    cut = replace(collective, chunks=ChunkTable(block, trees.weight))
    step = trees.depths().reshape(-1)
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
    """
    scale = Fraction(int(one.weight.sum()), int(other.weight.sum()))  # trees per unit, there and here
    ends = [np.cumsum(one.weight * scale.denominator), np.cumsum(other.weight * scale.numerator)]
    cuts = np.union1d(*ends)
    weight = np.diff(cuts, prepend=0)
    return one.cut(np.searchsorted(ends[0], cuts), weight), other.cut(np.searchsorted(ends[1], cuts), weight)
