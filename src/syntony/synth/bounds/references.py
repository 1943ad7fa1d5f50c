"""The rates of two constructions of all_reduce. They are references, not bounds: a schedule may be faster.

    composition   reduce_scatter, then all_gather: each at its own optimum, one after the other
    trees         every byte is summed along a tree to some root and copied down another one, with the best roots,
                  trees and shares; both directions run at once

How fast trees can be is a linear program. Give each rank v a share x_v of the rate for which it is the root, and divide
every wire's bandwidth between going up and going down. By Edmonds (1973), trees that spread x_v from every v fit into
`down` iff the sum of all x can flow, from sources of x_v each, to every single rank; for sums, the same holds with all
arrows reversed:

    maximize  sum of x_v   such that   down + up  <=  bandwidth                on every link,
                                       a flow within `down` takes every x_v to u,
                                       a flow within `up` takes the sum of x from u to all v     for every rank u

On a mesh this beats the composition: a corner has two links, which limits all_gather, while sums need not pass through
it. (Mesh 4x4: 1.6 links against 1.0667; torus and DGX-1: no difference.)

Ranks may branch and add, and so may switches that can do both at any rate (for these the program is an upper estimate,
because switches need not receive all data: Steiner trees). Other switches and NICs forward: each takes in as much of
`down` as it sends out, and likewise of `up`. Then it can be split into routes from link to link that preserve all flows
(Mader 1982; Bang-Jensen, Frank and Jackson 1995; csrc/solve/trees/relay_removal.hpp), so flows can be computed as if
the node branched.

A flow for every rank and direction makes a large program. By the max-flow min-cut theorem it is equivalent to require
that no set of nodes without u takes in less of `up`, or lets out less of `down`, than its share. There are too many
sets to list, but few matter, and a maximum flow finds one that a solution violates:

    the program with some sets ──▶ x, down, up ──▶ for every rank and direction a maximum flow ──▶ all x arrive: keep
              ▲                                                                                          │
              └────────────────────────── the minimum cuts of those that do not ◀────────────────────────┘

The flows are not computed at the program's own solution, which is a vertex and jumps from one to the next, but half way
between it and the best solution kept, which violates nothing (in-out separation, Ben-Ameur and Neto 2007). The first
one kept is the composition. The search ends when the program's optimum is no better than the solution kept.

Symmetry reduces the program as for all_to_all: one u per orbit, all else equal within orbits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony._solve import FlowNetwork
from syntony.base.deadline import ENDLESS, Deadline, wall
from syntony.synth.bounds.arcs import Arcs
from syntony.synth.bounds.demand import fitting_generators
from syntony.synth.bounds.pairs import Pairs
from syntony.synth.bounds.throughput import throughput
from syntony.synth.model.bound import Throughput, fraction_text
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.topologies.graph.symmetry import orbits

MAX_WIRES = 20_000
"""The most node pairs; with more, the program takes minutes."""
FINE = 1 << 40
"""Integer units that represent the greatest bandwidth of a wire in the search for cuts."""
EXACT = 1e-7
"""The violation of a set that is tolerated, as a part of the rate: HiGHS satisfies its rows to that."""
SOLVED = 1e-9
"""How near the solution kept must be to the program's optimum."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class References:
    """Rates in bytes of the size per second.

    composition  exact, from the two throughput bounds; reached if both are
    trees        floating point (HiGHS); None if the program is too large, or nothing was found in time
    """

    composition: Fraction
    trees: float | None

    def to_dict(self) -> dict[str, Any]:
        """The object `references` of `syntony bound --json`."""
        composed = {"algbw": float(self.composition), "seconds_per_byte": fraction_text(1 / self.composition)}
        return {"composition": composed, "trees": None if self.trees is None else {"algbw": self.trees}}


def all_reduce_references(network: Network, deadline: Deadline = ENDLESS) -> References:
    """The reference rates for an all_reduce among at least two members."""
    composed = all_reduce_composed(network, deadline)
    best = best_trees(network, deadline=deadline)
    return References(1 / composed, None if best is None else best.rate)


def all_reduce_composed(network: Network, deadline: Deadline = ENDLESS) -> Fraction:
    """Seconds per byte of the composition."""
    return sum((half.seconds_per_byte for half in _halves(network, deadline)), Fraction(0))


@dataclass(frozen=True)
class BestTrees:
    """How the best trees divide the work and the wires; floating point (HiGHS), bytes of the size per second.

    rate      of all trees together
    shares    per member (a node), of the trees rooted there
    down, up  per pair of nodes joined by a wire: the part of it that trees may use
    """

    rate: float
    shares: dict[int, float]
    down: dict[tuple[int, int], float]
    up: dict[tuple[int, int], float]


def best_trees(
    network: Network, least: float = 0.0, branching: bool = True, deadline: Deadline = ENDLESS
) -> BestTrees | None:
    """The program's optimum for an all_reduce; None if it is too large. Past the deadline, the best solution found.

    Every member is the root of at least `least` times an equal share. `branching`: whether switches may branch and add.
    """
    trees = _Trees(network, branching, max(half.seconds_per_byte for half in _halves(network, deadline)))
    return trees.solve(least, deadline) if len(trees.pairs.tails) <= MAX_WIRES else None


def _halves(network: Network, deadline: Deadline) -> list[Throughput]:
    """The bounds of reduce_scatter and of all_gather."""
    kinds = ("reduce_scatter", "all_gather")
    members = network.collective.members
    collectives = [Collective.make(kind, members=members) for kind in kinds]
    return [throughput(replace(network, collective=collective), deadline=deadline) for collective in collectives]


class _Rows:
    """Rows of a sparse matrix, entry by entry; sum of value * column <= bound."""

    def __init__(self) -> None:
        self.row: list[int] = []
        self.column: list[int] = []
        self.value: list[float] = []
        self.bounds: list[float] = []

    def add(self, columns: Iterable[int], values: Iterable[float], bound: float = 0.0) -> None:
        before = len(self.column)
        self.column += columns
        self.value += values
        self.row += [len(self.bounds)] * (len(self.column) - before)
        self.bounds.append(bound)

    def matrix(self, columns: int) -> Any:
        """As a SciPy matrix."""
        from scipy.sparse import coo_array

        shape = (len(self.bounds), columns)
        return coo_array((self.value, (self.row, self.column)), shape=shape).tocsr()


class _Trees:
    """The program; see the module docstring.

    A listener is a member that represents its orbit, a wire a pair of nodes that links join. Columns: the share of each
    root, per orbit of listeners; then per orbit of wires `down`, then `up`. Rates in units of the greatest capacity.
    """

    def __init__(self, network: Network, branching: bool, slower: Fraction) -> None:
        self.arcs = Arcs.of(network)
        generators = fitting_generators(network)
        self.pairs = Pairs.of(self.arcs, generators)
        nodes, members = network.topology.nodes, set(network.collective.members)
        self.orbits = orbits(len(nodes), generators)
        self.listeners = [orbit for orbit in self.orbits if orbit[0] in members]
        self.members = np.asarray([node for orbit in self.listeners for node in orbit], np.int32)
        self.share = np.repeat(np.arange(len(self.listeners)), [len(orbit) for orbit in self.listeners])
        unlimited = [node for node in nodes if node.aggregator is None or node.aggregator.rate is None]
        free = {node.id for node in unlimited if node.multicast and node.reduces} if branching else set()
        self.relays = [orbit[0] for orbit in self.orbits if orbit[0] not in members | free]
        _, first = np.unique(self.pairs.orbit, return_index=True)
        self.scale = max(self.pairs.capacity)
        self.room = [self.pairs.capacity[pair] / self.scale for pair in first.tolist()]
        self.begin = (len(self.listeners), len(self.listeners) + len(first))  # of `down`, of `up`
        self.even = float(1 / (2 * slower) / self.scale / self.arcs.unit)
        self.columns = len(self.listeners) + 2 * len(first)

    def solve(self, least: float, deadline: Deadline) -> BestTrees | None:
        """See `best_trees`."""
        from scipy.optimize import linprog

        equal, most = self._balances(), self._shared(least)
        for way in range(2):
            for listener in self.listeners:
                for alone in (True, False):
                    inside = np.arange(self.arcs.nodes) == listener[0]
                    self._require(most, way, inside if alone else ~inside)
        objective = np.zeros(self.columns)
        objective[: len(self.listeners)] = [-float(len(orbit)) for orbit in self.listeners]
        fixed = (equal.matrix(self.columns), equal.bounds) if equal.bounds else (None, None)
        kept = self._composition()
        while not deadline.passed():
            rows = most.matrix(self.columns), most.bounds
            limit = {"time_limit": wall(deadline.left())}
            solved = linprog(objective, *rows, *fixed, method="highs", options=limit)
            if not solved.success:
                break
            corner = np.maximum(np.asarray(solved.x), 0.0)
            for tried in (corner,) if kept is None else (corner, (corner + kept) / 2):
                sets = [(way, inside) for way in range(2) for inside in self._violated(tried, way, deadline)]
                if deadline.passed():
                    break
                if not sets:
                    kept = tried
                for way, inside in sets:
                    self._require(most, way, inside)
            if kept is not None and objective @ kept <= (1 - SOLVED) * float(solved.fun):
                break
        return None if kept is None else self._answer(kept)

    def _composition(self) -> Floats | None:
        """Equal shares, and half of every wire for each direction; None if forwarding nodes are not in balance."""
        net = np.bincount(self.pairs.tails, self.pairs.capacity, self.arcs.nodes)
        if (net - np.bincount(self.pairs.heads, self.pairs.capacity, self.arcs.nodes))[self.relays].any():
            return None
        half = np.asarray([*self.room, *self.room]) / 2
        return np.concatenate((np.full(len(self.listeners), self.even / len(self.members)), half))

    def _answer(self, found: Floats) -> BestTrees:
        rates = found * float(self.scale * self.arcs.unit)
        pairs = list(zip(self.pairs.tails.tolist(), self.pairs.heads.tolist(), strict=True))
        down, up = (dict(zip(pairs, rates[start + self.pairs.orbit].tolist(), strict=True)) for start in self.begin)
        shares = dict(zip(self.members.tolist(), rates[self.share].tolist(), strict=True))
        return BestTrees(float(sum(shares.values())), shares, down, up)

    def _balances(self) -> _Rows:
        """A forwarding node takes in as much as it sends out, of `down` and of `up`."""
        rows = _Rows()
        for relay in self.relays:
            out, into = (np.flatnonzero(ends == relay) for ends in (self.pairs.tails, self.pairs.heads))
            orbit = self.pairs.orbit[np.concatenate((out, into))]
            for start in self.begin:
                rows.add((start + orbit).tolist(), [1.0] * len(out) + [-1.0] * len(into))
        return rows

    def _shared(self, least: float) -> _Rows:
        """Down and up share each wire, and no root has less than its least share."""
        rows = _Rows()
        for orbit, room in enumerate(self.room):
            rows.add([start + orbit for start in self.begin], [1.0, 1.0], room)
        equally = [least * len(orbit) / len(self.members) for orbit in self.listeners]
        for number in range(len(self.listeners) if least else 0):
            rows.add([*range(len(self.listeners)), number], [*equally, -1.0])
        return rows

    def _require(self, rows: _Rows, way: int, inside: NDArray[np.bool_]) -> None:
        """The set lets out (way 0), or takes in (way 1), the shares of its members; some member is outside."""
        ends = (self.pairs.tails, self.pairs.heads) if way == 0 else (self.pairs.heads, self.pairs.tails)
        crossing = self.pairs.orbit[inside[ends[0]] & ~inside[ends[1]]]
        wires, times = np.unique(crossing, return_counts=True)
        roots, of_them = np.unique(self.share[inside[self.members]], return_counts=True)
        rows.add([*roots.tolist(), *(self.begin[way] + wires).tolist()], [*of_them.tolist(), *(-times).tolist()])

    def _violated(self, found: Floats, way: int, deadline: Deadline) -> Iterator[NDArray[np.bool_]]:
        """Sets that lack more than HiGHS allows, by the least cuts on both sides of each listener's maximum flow."""
        ends = (self.pairs.tails, self.pairs.heads) if way == 0 else (self.pairs.heads, self.pairs.tails)
        source = self.arcs.nodes
        capacity = np.rint(found[self.begin[way] + self.pairs.orbit] * FINE).astype(np.int64)
        shares = np.rint(found[self.share] * FINE).astype(np.int64)
        total = int(shares.sum())
        flow = FlowNetwork(
            source + 1,
            np.concatenate((ends[0], np.full(len(shares), source, np.int32))),
            np.concatenate((ends[1], self.members)),
            np.concatenate((capacity, shares)),
        )
        for listener in self.listeners:
            if deadline.passed():
                return
            flow.reset()
            if total - flow.augment(source, listener[0]) > EXACT * total:
                near = flow.reachable_from(source)[:-1]
                far = ~flow.reaching(listener[0])[:-1]
                yield near
                if not np.array_equal(near, far):
                    yield far
