"""Weighted trees that share the links, and a proof of how good any such packing can be.

The *excess* of a packing is the load of its busiest link, relative to what that link carries in the time of the
throughput bound; 1 is the best possible. Two methods help each other:

    multiplicative weights     finds trees that avoid loaded links, with weights that improve slowly
    a linear program           finds the best weights for the known trees; its prices of links lead to further trees

Any lengths of links prove a lower bound on the excess: no packing costs less than one of shortest trees. Lengths are
rounded to whole numbers, so that the bound is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony._solve import Forest, FractionalPacking
from syntony.base.deadline import wall
from syntony.synth.bounds.throughput import throughput
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.forest.trees import Trees
from syntony.synth.model.network import Network

EPSILON = 0.01
"""The search ends when a packing is within this of the proven bound."""
MOST_ENTRIES = 1_000_000
"""Largest linear program, in trees times edges; a larger one is not solved."""
MOST_EDGES = 20_000_000
"""Most known trees; with more, no further ones are looked for."""

_ASKED = 20
"""How often in a row further trees are found by the prices of the program."""
_WHOLE = 1 << 20
"""The greatest length when lengths are rounded."""
_FEW_PARTS = range(1, 128)
"""Denominators that are tried first for the weights of a root's trees: the least in which all of them are whole."""
_GRAIN = 1 << 16
"""The denominator to which weights are rounded if none of _FEW_PARTS fits."""

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of the known trees, in their order; trees found later have weight 0.

    weight  per tree; those of a root add up to what it must send
    excess  load of the busiest link relative to its capacity; 1 is the throughput bound
    """

    weight: Doubles
    excess: float

    @property
    def trees(self) -> int:
        """The number of trees with a weight."""
        return int(np.count_nonzero(self.weight))


class Packing:
    """The trees known for an all_gather or broadcast.

    room    float64 (links,)  capacity: what each link carries in the time of the bound, in chunk weight
    owed    int64 (ranks,)    total weight of the trees of each root, in the same units
    proven  no packing's excess is below it; exact
    """

    def __init__(self, network: Network) -> None:
        topology, collective = network.topology, network.collective
        self.network = network
        self.owed = np.bincount(collective.chunks.block, collective.chunks.weight).astype(np.int64)
        if collective.kind == "broadcast":
            self.owed = np.where(np.arange(collective.ranks) == collective.root, self.owed[0], 0)
        per_unit = throughput(network).seconds_per_byte / collective.unit
        self._exact_room = [per_unit * link.bandwidth for link in network.links]
        self.room = np.asarray([float(room) for room in self._exact_room])
        self.proven = Fraction(1)
        relays = [node.id for node in topology.nodes if node.kind != "rank"]
        number = {node: i for i, node in enumerate([*collective.members, *relays])}
        self._core = FractionalPacking(
            len(number),
            np.asarray([number[link.src] for link in network.links], np.int32),
            np.asarray([number[link.dst] for link in network.links], np.int32),
            self.room,
            self.owed.astype(np.float64),
        )
        self._read()

    @property
    def roots(self) -> Integers:
        """The root of each tree."""
        return self.forest.root.astype(np.int64)

    def _read(self) -> None:
        """Copies the trees that the core has found by now."""
        from scipy.sparse import coo_array

        forest: Forest = self._core.forest()
        self.forest = forest
        edges = max(1, len(self.owed) - 1)
        hops = np.diff(forest.route_offset)
        routes = forest.route.astype(np.int64)
        tree = np.repeat(np.arange(len(routes)) // edges, hops[routes])
        first = np.repeat(forest.route_offset[:-1][routes] - np.r_[0, np.cumsum(hops[routes])[:-1]], hops[routes])
        link = forest.route_link[first + np.arange(len(first))].astype(np.int64) if len(first) else first
        shape = (len(self.room), len(forest.root))
        self.uses: Any = coo_array((np.ones(len(link)), (link, tree)), shape=shape).tocsr()

    def search(self, seconds: float) -> Weights:
        """The best packing found once it is within EPSILON of what is proven, or time is up."""
        budget = Budget(seconds)
        most = max(1, MOST_EDGES // len(self.owed))
        phases = 8
        best: Weights | None = None
        while True:
            going_on = self._core.run(phases, budget.left(), most)
            self._prove(self._core.lengths)
            self._read()
            best = self._better(best, self.weighed(self._core.weights))
            for _ in range(_ASKED):
                if best.excess <= (1 + EPSILON) * self.proven or not budget.left() or not self.small:
                    break
                solved = self.reweighted(np.arange(len(self.forest.root)), budget.left())
                if solved is None:
                    break
                best, before = self._better(best, solved[0]), len(self.forest.root)
                self._prove(solved[1])
                self._read()
                if len(self.forest.root) == before:
                    break
            if best.excess <= (1 + EPSILON) * self.proven or not going_on:
                return self._padded(best)
            phases *= 2

    @property
    def small(self) -> bool:
        """Whether the linear program is small enough to be solved."""
        return int(self.uses.nnz) <= MOST_ENTRIES

    def _padded(self, found: Weights) -> Weights:
        return Weights(np.pad(found.weight, (0, len(self.forest.root) - len(found.weight))), found.excess)

    @staticmethod
    def _better(one: Weights | None, other: Weights) -> Weights:
        return other if one is None or other.excess < one.excess else one

    def weighed(self, weight: Doubles) -> Weights:
        """Weights as given, whatever they add up to."""
        roots = self.roots
        total = np.bincount(roots, weight, len(self.owed))
        scaled = weight * (self.owed / np.where(total > 0, total, 1.0))[roots]
        return Weights(scaled, float((self.uses @ scaled / self.room).max()))

    def reweighted(self, trees: Integers, seconds: float) -> tuple[Weights, Doubles] | None:
        """The best weights for only these trees, which give zero to unneeded ones, and the prices of links.

        None if the solver gives up or runs out of time.
        """
        from scipy.optimize import linprog
        from scipy.sparse import coo_array, hstack

        roots = self.roots[trees]
        owing = np.flatnonzero(self.owed)
        place = np.searchsorted(owing, roots)
        equal = coo_array((np.ones(len(trees)), (place, np.arange(len(trees)))), shape=(len(owing), len(trees) + 1))
        load = hstack([self.uses[:, trees], coo_array(-self.room[:, None])]).tocsr()
        answer = linprog(
            np.r_[np.zeros(len(trees)), 1.0],
            load,
            np.zeros(len(self.room)),
            equal.tocsr(),
            self.owed[owing].astype(np.float64),
            method="highs-ds",
            options={"time_limit": wall(max(seconds, 0.01))},
        )
        if answer.status != 0:
            return None
        weight = np.zeros(len(self.forest.root))
        weight[trees] = np.where(answer.x[:-1] > 1e-9 * self.owed[roots], answer.x[:-1], 0.0)
        return self.weighed(weight), np.maximum(-answer.ineqlin.marginals, 0.0)

    def _prove(self, lengths: Doubles) -> None:
        """Raises `proven` to what these lengths prove, if that is more, and adds their cheapest trees."""
        top = float(lengths.max(initial=0.0))
        if not top > 0:
            return
        whole = np.rint(lengths * (_WHOLE / top))
        cost = self._core.cheapest(whole)
        if cost < 2.0**53:  # so far doubles are exact
            worth = sum((int(length) * room for length, room in zip(whole, self._exact_room, strict=True)), Fraction(0))
            self.proven = max(self.proven, int(cost) / worth)

    def trees(self, found: Weights) -> Trees:
        """The trees with a weight, by root; weights rounded to whole numbers, alike for all roots."""
        kept = np.flatnonzero(found.weight)
        kept = kept[np.argsort(self.roots[kept], kind="stable")]
        roots = self.roots[kept]
        part = found.weight[kept] * ((self.owed // np.gcd.reduce(self.owed)) / np.maximum(self.owed, 1))[roots]
        whole = (grain for grain in _FEW_PARTS if np.abs(part * grain - np.rint(part * grain)).max() < 1e-6)
        grain = next(whole, _GRAIN)
        weight = np.zeros(len(kept), np.int64)
        for root in np.unique(roots):
            mine = np.flatnonzero(roots == root)
            weight[mine] = _rounded(part[mine] * grain)
        kept, weight = kept[weight > 0], weight[weight > 0]
        weight //= np.gcd.reduce(weight)
        forest, shape = self.forest, (len(self.forest.root), len(self.owed) - 1)
        ids = np.asarray([link.id for link in self.network.links], np.int64)
        return Trees(
            self.roots[kept],
            weight,
            forest.tail.astype(np.int64).reshape(shape)[kept],
            forest.head.astype(np.int64).reshape(shape)[kept],
            forest.route.astype(np.int64).reshape(shape)[kept],
            forest.route_offset,
            ids[forest.route_link],
        )


def _rounded(parts: Doubles) -> Integers:
    """Whole numbers near the parts, with the same sum, which must be whole."""
    whole = np.floor(parts + 1e-6).astype(np.int64)
    whole[np.argsort(whole - parts)[: round(float(parts.sum())) - int(whole.sum())]] += 1
    return whole
