"""The rates of two constructions of all_reduce. They are references, not bounds: a schedule may be faster.

    composition   reduce_scatter, then all_gather: each at its own optimum, one after the other
    trees         every byte is summed along a tree to some root and copied down another one, with the best roots,
                  trees and shares; both directions run at once

How fast trees can be is a linear program. Give each rank v a share x_v of the rate for which it is the root, and divide
every wire's bandwidth between going up and going down. By Edmonds (1973) trees that spread x_v from every v fit into
what goes down iff the sum of all x can flow, from sources of x_v each, to every single rank; sums are the same with
all arrows turned:

    maximize  sum of x_v   such that   down + up  <=  bandwidth                on every link,
                                       a flow within `down` takes every x_v to u,
                                       a flow within `up` takes the sum of x from u to all v     for every rank u

On a mesh this beats the composition: a corner has two links, which limits all_gather, while sums need not pass through
it. (Mesh 4x4: 1.6 links against 1.0667; torus and DGX-1: no difference.)

Ranks may branch and add, and so may switches that can do both at any rate (for these the program is an upper estimate,
because switches need not receive all data: Steiner trees). Other switches and NICs only forward, so an edge of a tree
is a route between two nodes that may branch, and the routes share the links. Symmetry reduces the program as for
all_to_all: one u per orbit, all else equal within orbits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from syntony.synth.bounds.arcs import Arcs
from syntony.synth.bounds.demand import fitting_generators
from syntony.synth.bounds.pairs import Pairs, pair_orbits
from syntony.synth.bounds.throughput import throughput
from syntony.synth.model.bound import fraction_text
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.topologies.graph.symmetry import orbits

MAX_LP_VARIABLES = 40_000


@dataclass(frozen=True)
class References:
    """Rates in bytes of the size per second.

    composition  exact, of the two throughput bounds; reached where both are
    trees        floating point (HiGHS); None where the program is too large or the solver gave up
    """

    composition: Fraction
    trees: float | None

    def to_dict(self) -> dict[str, Any]:
        """The object `references` of `syntony bound --json`."""
        composed = {"algbw": float(self.composition), "seconds_per_byte": fraction_text(1 / self.composition)}
        return {"composition": composed, "trees": None if self.trees is None else {"algbw": self.trees}}


def all_reduce_references(network: Network) -> References:
    """The reference rates for an all_reduce among at least two members."""
    collective = network.collective
    halves = [
        throughput(replace(network, collective=Collective.make(kind, members=collective.members)))
        for kind in ("reduce_scatter", "all_gather")
    ]
    composed = sum((half.seconds_per_byte for half in halves), Fraction(0))
    best = best_trees(network)
    return References(1 / composed, None if best is None else best.rate)


@dataclass(frozen=True)
class BestTrees:
    """How the best trees divide the work and the wires; floating point (HiGHS), bytes of the size per second.

    rate      of all trees together
    shares    per member (a node), of the trees that it is the root of
    down, up  per pair of nodes that a wire joins: what trees may take of it; empty where messages pass through switches
              (then a pair's capacity is spread over routes)
    """

    rate: float
    shares: dict[int, float]
    down: dict[tuple[int, int], float]
    up: dict[tuple[int, int], float]


def best_trees(network: Network, least: float = 0.0) -> BestTrees | None:
    """The program's optimum for an all_reduce; None where it is too large or the solver gave up.

    Every member is the root of at least `least` times an equal share.
    """
    return _Trees(network).solve(least)


class _Rows:
    """Rows of a sparse matrix, entry by entry."""

    def __init__(self) -> None:
        self.row: list[int] = []
        self.column: list[int] = []
        self.value: list[float] = []
        self.bounds: list[float] = []

    def add(self, terms: Sequence[tuple[int, float]], bound: float = 0.0) -> None:
        """One row: sum of value * column against the bound."""
        self.row += [len(self.bounds)] * len(terms)
        self.column += [column for column, _ in terms]
        self.value += [value for _, value in terms]
        self.bounds.append(bound)

    def matrix(self, columns: int) -> Any:
        """As SciPy takes it."""
        from scipy.sparse import coo_array

        shape = (len(self.bounds), columns)
        return coo_array((self.value, (self.row, self.column)), shape=shape).tocsr()


class _Trees:
    """The linear program of the best trees; see the top of the file.

    A listener is a member that represents its orbit, a speaker a node that may branch and represents its orbit, a wire
    a pair of such nodes (of links, or of routes). Columns, in this order:

        shares   per listener, of each root in its orbit
        down     per orbit of wires, then the same for up
        flows    per listener, per direction, per wire
        routes   per speaker, per pair of nodes that links join; none where all links join nodes that may branch
    """

    def __init__(self, network: Network) -> None:
        self.arcs = Arcs.of(network)
        generators = fitting_generators(network)
        self.pairs = Pairs.of(self.arcs, generators)
        nodes, members = network.topology.nodes, set(network.collective.members)
        unlimited = [node for node in nodes if node.aggregator is None or node.aggregator.rate is None]
        self.agents = sorted({*members, *(node.id for node in unlimited if node.multicast and node.reduces)})
        known = set(self.agents)
        self.speakers = [orbit for orbit in orbits(len(nodes), generators) if orbit[0] in known]
        self.listeners = [orbit for orbit in self.speakers if orbit[0] in members]
        self.share = {node: number for number, orbit in enumerate(self.listeners) for node in orbit}
        self.routed = not known.issuperset(self.pairs.tails.tolist() + self.pairs.heads.tolist())
        wires = len(known) * (len(known) - 1) if self.routed else len(self.pairs.tails)
        self.flow_columns = 2 * len(self.listeners) * wires
        self.route_columns = self.routed * len(self.speakers) * len(self.pairs.tails)
        self.generators = generators

    def _lay_wires(self) -> None:
        """Sets the ends of each wire and its columns; with a thousand agents, there are a million wires."""
        if self.routed:
            there, here = np.meshgrid(np.asarray(self.agents), np.asarray(self.agents))
            apart = here != there
            self.tails, self.heads = here[apart], there[apart]
            self.orbit = pair_orbits(self.arcs.nodes, self.tails, self.heads, self.generators)
        else:
            self.tails, self.heads = self.pairs.tails.astype(np.int64), self.pairs.heads.astype(np.int64)
            self.orbit = self.pairs.orbit
        kinds = int(self.orbit.max()) + 1
        self.direction = (len(self.listeners), len(self.listeners) + kinds)  # down, up: the column of orbit 0
        self.flows = self.direction[1] + kinds
        self.routes = self.flows + self.flow_columns
        self.columns = self.routes + self.route_columns

    def solve(self, least: float) -> BestTrees | None:
        """See `best_trees`. None where the program is too large, or the solver gave up."""
        from scipy.optimize import linprog

        if self.flow_columns + self.route_columns > MAX_LP_VARIABLES:
            return None
        self._lay_wires()
        equal, most = _Rows(), _Rows()
        for number, listener in enumerate(self.listeners):
            for way in range(2):
                self._spread(equal, most, listener[0], way, self.flows + (2 * number + way) * len(self.tails))
        scale = max(self.pairs.capacity)
        if self.routed:
            self._fit_routes(equal, most, scale)
        else:
            self._fit_links(most, scale)
        members = sum(len(orbit) for orbit in self.listeners)
        for number in range(len(self.listeners)):
            equally = [(other, least * len(orbit) / members) for other, orbit in enumerate(self.listeners)]
            most.add([*equally, (number, -1.0)])
        objective = np.zeros(self.columns)
        objective[: len(self.listeners)] = [-float(len(orbit)) for orbit in self.listeners]
        matrices = most.matrix(self.columns), most.bounds, equal.matrix(self.columns), equal.bounds
        solved = linprog(objective, *matrices, method="highs")
        if not solved.success:
            return None
        unit = float(scale * self.arcs.unit)
        found = solved.x * unit
        pairs = [] if self.routed else list(zip(self.tails.tolist(), self.heads.tolist(), strict=True))
        down, up = (
            dict(zip(pairs, found[start + self.orbit[: len(pairs)]].tolist(), strict=True)) for start in self.direction
        )
        shares = {node: float(found[number]) for node, number in self.share.items()}
        return BestTrees(-float(solved.fun) * unit, shares, down, up)

    def _spread(self, equal: _Rows, most: _Rows, listener: int, way: int, flow: int) -> None:
        """Flows of every root's share to the listener (way 0: down), or of the listener's to every root (way 1: up)."""
        net: dict[int, list[tuple[int, float]]] = {agent: [] for agent in self.agents}
        sign = -1.0 if way else 1.0
        ends = zip(self.tails.tolist(), self.heads.tolist(), self.orbit.tolist(), strict=True)
        for wire, (tail, head, orbit) in enumerate(ends):
            net[tail].append((flow + wire, sign))
            net[head].append((flow + wire, -sign))
            most.add([(flow + wire, 1.0), (self.direction[way] + orbit, -1.0)])
        for agent, terms in net.items():
            if agent != listener:
                equal.add([*terms, (self.share[agent], -1.0)] if agent in self.share else terms)

    def _fit_links(self, most: _Rows, scale: int) -> None:
        """Down and up share each link."""
        _, first = np.unique(self.orbit, return_index=True)
        for orbit, wire in enumerate(first.tolist()):
            both = [(start + orbit, 1.0) for start in self.direction]
            most.add(both, self.pairs.capacity[wire] / scale)

    def _fit_routes(self, equal: _Rows, most: _Rows, scale: int) -> None:
        """Down and up between two agents are divided over the routes through nodes that only forward."""
        wire_orbit = dict(
            zip(zip(self.tails.tolist(), self.heads.tolist(), strict=True), self.orbit.tolist(), strict=True)
        )
        known = set(self.agents)
        ends = list(zip(self.pairs.tails.tolist(), self.pairs.heads.tolist(), self.pairs.orbit.tolist(), strict=True))
        load: list[list[tuple[int, float]]] = [[] for _ in range(int(self.pairs.orbit.max()) + 1)]
        room = [0.0] * len(load)
        for (_, _, orbit), capacity in zip(ends, self.pairs.capacity, strict=True):
            room[orbit] += capacity / scale
        for number, speaker in enumerate(self.speakers):
            net: dict[int, list[tuple[int, float]]] = {}
            for pair, (tail, head, orbit) in enumerate(ends):
                if (tail in known and tail != speaker[0]) or head == speaker[0]:
                    continue
                column = self.routes + number * len(ends) + pair
                load[orbit].append((column, float(len(speaker))))
                net.setdefault(head, []).append((column, 1.0))
                if tail != speaker[0]:
                    net.setdefault(tail, []).append((column, -1.0))
            for agent in self.agents:
                if agent != speaker[0]:
                    orbit = wire_orbit[speaker[0], agent]
                    net.setdefault(agent, []).extend((start + orbit, -1.0) for start in self.direction)
            for terms in net.values():
                equal.add(terms)
        for terms, most_of_it in zip(load, room, strict=True):
            most.add(terms, most_of_it)
