"""Shallow trees that negotiate for links: any number of them, for sums and copies together.

    patience 1      few hops, some links busier than need be       small sizes
    patience 0.01   links evenly busy, deeper                      large sizes; csrc/solve/trees/negotiated.hpp

The best choice depends on the size, so several numbers of trees and patiences are tried. The trees of an all_reduce
have the roots of the best trees of infinite size (bounds/references.py): on a mesh the middle, not the corners.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from syntony import _solve
from syntony.base.deadline import Deadline
from syntony.synth.bounds.references import best_trees
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.model.routes import Route, routes_of

NUMBERS = (2, 3, 4, 6, 16, 64)
"""Numbers of trees that are tried for one root."""
PER_ROOT = (1, 2, 4)
"""Numbers of trees per root that are tried if all ranks are roots."""
MANY_PER_ROOT = (8, 16)
"""Further numbers per root. Many trees divide unequal links more evenly, while their messages are long enough to stream
(LEAST_BYTES, MANY_HOPS)."""
LEAST_BYTES = 1 << 20
"""Bytes that each of many trees moves, at least."""
MANY_HOPS = 2_500
"""Hops of many trees together, at most."""
PATIENCE = (0.02, 0.1, 0.5, 2.0)
ROUNDS = 32
SLICES = (8, 64)
"""Assumed numbers of slices of a tree's message: a slice is forwarded when it has arrived."""
MOST_HOPS = 12_000
"""The most hops of all trees together, except for the least number of trees."""

Integers = NDArray[np.signedinteger]
Hops = tuple[tuple[Route, int], ...]


@dataclass(frozen=True)
class Tree:
    """Hops with the distance from the root at which they begin, from the root on; those of `up` lead to it."""

    root: int
    up: Hops
    down: Hops


@dataclass(frozen=True, eq=False)
class Negotiation:
    """The data to spread or sum, and the routes to use.

    links    bandwidths, bytes/s
    time     seconds for which a link should be busy at most
    shares   of each root among the trees of an all_reduce; None: equal
    """

    collective: Collective
    routes: tuple[Route, ...]
    links: NDArray[np.float64]
    size: int
    time: float
    shares: NDArray[np.float64] | None

    @staticmethod
    def of(network: Network, size: int, per_byte: float, deadline: Deadline) -> Negotiation | None:
        """None if there is nothing to spread, or blocks are unequal. `per_byte`: least seconds per byte."""
        collective = network.collective
        blocks = np.bincount(collective.chunks.block, collective.chunks.weight)
        if collective.ranks == 1 or len(set(blocks.tolist())) > 1:
            return None
        shares = None
        if collective.kind == "all_reduce":
            best = best_trees(network, branching=False, deadline=Deadline(deadline.left() / 4))
            if best is not None:
                shares = np.asarray([best.shares[member] for member in collective.members]) / best.rate
                per_byte = max(per_byte, 1 / best.rate)
        links = np.asarray([float(link.bandwidth) for link in network.topology.links])
        return Negotiation(collective, routes_of(network).routes, links, size, max(1, size) * per_byte, shares)

    def forests(self) -> Iterator[list[list[Tree]]]:
        """Different trees, by number of trees: with some patiences, the fastest by estimate first."""
        yield from self._forests(self._roots(), MOST_HOPS, least=1)

    def of_many_trees(self) -> Iterator[list[list[Tree]]]:
        """The same of more trees, for all ranks as roots and long messages."""
        if self.collective.kind not in ("broadcast", "reduce"):
            most = self.size // (self.collective.ranks * LEAST_BYTES)
            yield from self._forests(self._over_roots(number for number in MANY_PER_ROOT if number <= most), MANY_HOPS)

    def _forests(self, all_roots: Iterator[Integers], hops: int, least: int = 0) -> Iterator[list[list[Tree]]]:
        """Of at most so many hops; the first `least` in any case."""
        ways = [way for way in (True, False) if self._goes(way)]
        for number, roots in enumerate(all_roots):
            if number >= least and len(roots) * len(ways) * (self.collective.ranks - 1) > hops:
                continue
            found: list[tuple[float, list[Tree]]] = []
            for patience, slices in product(PATIENCE, SLICES):
                seconds, trees = self._grown(roots, ways, patience, slices)
                if all(trees != others for _, others in found):
                    found.append((seconds, trees))
            yield [trees for _, trees in sorted(found, key=lambda one: one[0])]

    def _goes(self, backwards: bool) -> bool:
        return self.collective.combining if backwards else self.collective.kind not in ("reduce", "reduce_scatter")

    def _roots(self) -> Iterator[Integers]:
        """The roots of the trees, in ascending order."""
        if self.collective.kind in ("broadcast", "reduce"):
            yield from (np.full(number, self.collective.root) for number in NUMBERS)
            return
        yield from self._over_roots(PER_ROOT)

    def _over_roots(self, numbers: Iterable[int]) -> Iterator[Integers]:
        ranks = self.collective.ranks
        for number in numbers:
            equally = np.repeat(np.arange(ranks), number)
            yield equally
            dealt = equally if self.shares is None else _dealt(self.shares, number * ranks)
            if not np.array_equal(dealt, equally):
                yield dealt

    def _grown(self, roots: Integers, ways: list[bool], patience: float, slices: int) -> tuple[float, list[Tree]]:
        """The trees, and the time for which the busiest link and the deepest trees take."""
        weight = max(1, self.size) / len(roots)
        found = _solve.negotiated_trees(
            self.collective.ranks,
            np.asarray([route.src for route in self.routes], np.int32),
            np.asarray([route.dst for route in self.routes], np.int32),
            np.asarray([route.alpha + weight / slices / float(route.bandwidth) for route in self.routes]),
            np.concatenate(([0], np.cumsum([len(route.links) for route in self.routes], dtype=np.int64))),
            np.asarray([link for route in self.routes for link in route.links], np.int32),
            1 / self.links,
            np.tile(roots, len(ways)).astype(np.int64),
            np.full(len(roots) * len(ways), weight),
            np.repeat(np.asarray(ways, np.uint8), len(roots)),
            self.time,
            patience,
            ROUNDS,
        )
        trees = found.hop.reshape(len(ways), len(roots), -1).tolist()
        sides = {way: [self._timed(tree, way) for tree in side] for way, side in zip(ways, trees, strict=True)}
        nothing: list[Hops] = [()] * len(roots)
        both = zip(roots.tolist(), sides.get(True, nothing), sides.get(False, nothing), strict=True)
        return found.busy + found.depth, [Tree(root, up, down) for root, up, down in both]

    def _timed(self, tree: list[int], backwards: bool) -> Hops:
        """The hops with the distance from the root at which they begin."""
        reached: dict[int, int] = {}
        timed = []
        for number in tree:
            route = self.routes[number]
            here, there = (route.dst, route.src) if backwards else (route.src, route.dst)
            timed.append((route, reached.setdefault(here, 0)))
            reached[there] = reached[here] + 1
        return tuple(timed)


def _dealt(shares: NDArray[np.float64], number: int) -> Integers:
    """`number` roots, each as often as its share says (largest remainders are rounded up)."""
    wanted = shares * number
    times = np.floor(wanted).astype(np.int64)
    times[np.argsort(times - wanted, kind="stable")[: max(0, number - int(times.sum()))]] += 1
    return np.repeat(np.arange(len(shares)), times)
