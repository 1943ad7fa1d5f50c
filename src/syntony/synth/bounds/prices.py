"""Price bounds, for all_to_all: the dual of multi-commodity flow.

Put a price per byte on every link. A byte from s to d costs at least the cheapest path from s to d, and in one second
the network carries bytes for at most sum(price * bandwidth). So *any* prices prove

    seconds per byte of size  >=  sum over s, d of share(s, d) * cheapest(s, d)  /  sum of price * bandwidth

(a cut is the special case of price 1 on its exits). Data from one source to one destination are neither
copied nor summed, so switches that can do so make no difference.

The best prices are the dual solution of the flow LP, which HiGHS solves in floating point. They are then rounded to
fractions and the bound is recomputed exactly from those: rounding can weaken the bound but never make it false.

Symmetry: averaging a solution over a group of automorphisms keeps it a solution, so some best prices are equal within
each orbit of links, and one source per orbit is enough (bounds/flow_program.py). A torus of 4,096 has
one source and a handful of link orbits, where the whole LP has millions of variables.

Before that, prices that are quick to find are tried: cuts of single members, of islands (islands.py) and of sweeps
(sweep.py), and equal prices. On regular networks one of them is optimal, which is proven by a flow: data spread evenly
over shortest paths load no link longer. If none is proven optimal and the LP is too large, the best of them is used,
and the bound says which prices were searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony._solve import ShortestPaths
from syntony.base.deadline import ENDLESS, Deadline
from syntony.synth.bounds.arcs import Arcs
from syntony.synth.bounds.cut import cut_of
from syntony.synth.bounds.demand import block_weights, fitting_generators, member_orbits
from syntony.synth.bounds.flow_program import FlowProgram
from syntony.synth.bounds.islands import Labels, exits, islands
from syntony.synth.bounds.pairs import Pairs
from syntony.synth.bounds.sweep import sweeps
from syntony.synth.model.bound import Cut, Prices, Witness
from syntony.synth.model.network import Network
from syntony.topologies.topology import Permutation

MAX_LP_VARIABLES = 30_000
LP_SECONDS = 20
"""Time limit of HiGHS, which some networks need; a solution that is not optimal is not used."""
MAX_SPREAD = 10_000_000
"""Most sources times node pairs for `spread_load`: about a second."""
_SPREAD_TOGETHER = 16
"""Sources whose data `spread_load` spreads at once."""
_DENOMINATORS = (1, 2, 3, 4, 5, 6, 8, 12, 60, 840, 2**20)
_WORD = 2**63


class Priced(NamedTuple):
    """The best bound found, and which prices were searched."""

    witness: Witness
    searched: str


def priced(network: Network, arcs: Arcs, deadline: Deadline = ENDLESS) -> Priced:
    """The best prices found, until the deadline, for an all_to_all between at least two members."""
    demands = _Demands.of(network, arcs)
    size = len(demands.sources) * len(demands.pairs.tails)
    spread = float("inf") if deadline.passed() or size > MAX_SPREAD else demands.spread_load()
    best: Witness | None = None
    for witness in _cheap(demands):
        if best is None or _rate(witness) > _rate(best):
            best = witness
        if spread * (1 - 1e-9) <= _rate(best):
            return Priced(best, "all prices (data spread over shortest paths meets it)")
        if deadline.passed():
            return Priced(best, "the first of cuts and prices (time ran out)")
    assert best is not None
    searched = "cuts of members, islands and sweeps, and equal prices"
    if size > MAX_LP_VARIABLES:
        return Priced(best, f"{searched} (the flow LP has {size} variables)")
    seconds = min(LP_SECONDS, deadline.left())
    dual = _flow_dual(demands, seconds)
    if dual is None:
        return Priced(best, f"{searched} (the flow LP of {size} variables took more than {seconds:.2g} s)")
    for prices in _rounded(dual):
        found = demands.evaluate(prices)
        if found is not None and _rate(found) > _rate(best):
            best = found
    return Priced(best, f"all prices (flow LP, {size} variables)")


def proven_by(network: Network, arcs: Arcs, prices: NDArray[np.float64]) -> Prices | None:
    """The exact bound that prices per arc prove after rounding, without using symmetry; None if all are zero.

    Parallel links get the mean of their prices: it proves no less.
    """
    demands = _Demands.of(network, arcs, ())
    capacity = np.asarray([float(amount) for amount in arcs.capacity])
    pairs = demands.pairs.of_arc
    of_pair = np.bincount(pairs, prices * capacity) / np.bincount(pairs, capacity)
    scaled = of_pair / of_pair.max() * min(2**20, 2**53 // (arcs.nodes + 1))
    return demands.evaluate(np.rint(scaled).astype(np.int64))


def _cheap(demands: _Demands) -> Iterator[Witness]:
    """Witnesses that are quick to find, the quickest first."""
    arcs, members = demands.arcs, demands.members
    representatives = members[list(demands.sources)]
    singles = np.full(arcs.nodes, -1)
    singles[representatives] = np.arange(len(representatives))
    yield from _cuts(demands, [singles, *islands(arcs, members)])
    equal = demands.evaluate(np.ones(len(demands.pairs.tails), np.int64))
    if equal is not None:
        yield equal
    yield from _cuts(demands, list(sweeps(arcs, members, demands.table)))


def _rate(witness: Witness) -> Fraction:
    return witness.share / witness.bandwidth


@dataclass(frozen=True)
class _Demands:
    """What each member sends to each other one, up to symmetry.

    sources[i]   position among the members of a source that represents `times[i]` of them
    table        units of chunk weight from member to member; nothing from a member to itself
    """

    arcs: Arcs
    pairs: Pairs
    members: NDArray[np.int64]
    sources: tuple[int, ...]
    times: tuple[int, ...]
    table: NDArray[np.int64]
    unit: Fraction

    @staticmethod
    def of(network: Network, arcs: Arcs, symmetry: Sequence[Permutation] | None = None) -> _Demands:
        """Up to the topology's symmetry, or that of the generators given, which must fit."""
        generators = fitting_generators(network) if symmetry is None else list(symmetry)
        members = np.asarray(network.collective.members)
        position = {member: rank for rank, member in enumerate(members.tolist())}
        orbits = member_orbits(network, generators)
        table = block_weights(network.collective).copy()
        np.fill_diagonal(table, 0)
        return _Demands(
            arcs,
            Pairs.of(arcs, generators),
            members,
            tuple(position[orbit[0]] for orbit in orbits),
            tuple(len(orbit) for orbit in orbits),
            table,
            network.collective.unit,
        )

    def evaluate(self, prices: NDArray[np.int64]) -> Prices | None:
        """The exact bound that prices per pair, equal within orbits, prove; None if all are zero."""
        earned = sum(price * capacity for price, capacity in zip(prices.tolist(), self.pairs.capacity, strict=True))
        if not earned:
            return None
        owed = 0
        paths = self._paths(prices)
        for times, source in zip(self.times, self.sources, strict=True):
            distances = paths.distances(int(self.members[source]))[self.members].astype(np.int64)
            wanted = self.table[source]
            if int(distances.max()) * int(wanted.sum()) < _WORD:
                owed += times * int(wanted @ distances)
            else:
                owed += times * sum(int(w) * int(d) for w, d in zip(wanted, distances, strict=True))
        each = prices[self.pairs.of_arc]
        used = np.flatnonzero(each).tolist()
        return Prices(
            tuple(self.arcs.links[arc] for arc in used),
            tuple(Fraction(int(each[arc])) for arc in used),
            owed * self.unit,
            earned * self.arcs.unit,
        )

    def spread_load(self) -> float:
        """Seconds per byte of size when all data is spread over shortest paths: no bound exceeds it.

        Of what is to reach a node, each pair that ends a shortest path to it brings its part, by bandwidth.
        """
        pairs = self.pairs
        capacity = np.asarray([float(amount) for amount in pairs.capacity])
        paths = self._paths(np.ones(len(capacity), np.int64))
        load = np.zeros(int(pairs.orbit.max()) + 1)
        nodes, sources, times = self.arcs.nodes, np.asarray(self.sources), np.asarray(self.times)
        for first in range(0, len(sources), _SPREAD_TOGETHER):
            # A copy of the network per source, node v of the k-th at k * nodes + v.
            some = sources[first : first + _SPREAD_TOGETHER]
            distance = np.stack([paths.distances(int(node)) for node in self.members[some]])
            whole = np.zeros(distance.shape)
            whole[:, self.members] = self.table[some] * times[first : first + _SPREAD_TOGETHER, None]
            arriving = whole.reshape(-1)
            copy, last = np.nonzero(distance[:, pairs.heads] == distance[:, pairs.tails] + 1)
            tails, heads = copy * nodes + pairs.tails[last], copy * nodes + pairs.heads[last]
            part = capacity[last] / np.bincount(heads, capacity[last], len(arriving))[heads]
            # From the farthest nodes inwards, nodes of equal distance at once.
            far = -distance.reshape(-1)[heads]
            order = np.argsort(far, kind="stable")
            for ring in np.split(order, np.flatnonzero(np.diff(far[order])) + 1):
                moved = arriving[heads[ring]] * part[ring]
                arriving += np.bincount(tails[ring], moved, len(arriving))
                load += np.bincount(pairs.orbit[last[ring]], moved, len(load))
        room = np.bincount(pairs.orbit, capacity)
        return float((load / room).max() * self.unit / self.arcs.unit)

    def _paths(self, prices: NDArray[np.int64]) -> ShortestPaths:
        """Cheapest paths; prices are whole, and the sums stay below 2^53 and so exact."""
        assert int(prices.max()) * self.arcs.nodes < 2**53
        return ShortestPaths(self.arcs.nodes, self.pairs.tails, self.pairs.heads, prices.astype(np.float64))


def _cuts(demands: _Demands, partitions: list[Labels]) -> Iterator[Cut]:
    """The most crowded of the sets, leaving and entering."""
    for entering in (False, True):
        graph = demands.arcs.reversed() if entering else demands.arcs
        table = demands.table.T if entering else demands.table
        wanted = table.sum(axis=1)
        best = Fraction(0)
        for labels in partitions:
            home = labels[demands.members]
            for number, capacity in enumerate(exits(graph, labels)):
                here = np.flatnonzero(home == number)
                crowding = Fraction(int(wanted[here].sum() - table[np.ix_(here, here)].sum()), capacity or 1)
                if crowding > best:
                    best, inside = crowding, labels == number
        if best:
            yield cut_of(graph, inside, best * demands.unit / graph.unit, entering)


def _flow_dual(demands: _Demands, seconds: float) -> NDArray[np.float64] | None:
    """Dual prices per pair, scaled to a greatest of 1; None if the solver gives up."""
    pairs, arcs = demands.pairs, demands.arcs
    room = np.zeros(int(pairs.orbit.max()) + 1)
    np.add.at(room, pairs.orbit, np.asarray(pairs.capacity, np.float64))
    wanted = np.zeros((len(demands.sources), arcs.nodes), np.int64)
    wanted[:, demands.members] = demands.table[list(demands.sources)]
    sources = tuple(demands.members[list(demands.sources)].tolist())
    program = FlowProgram(pairs.tails, pairs.heads, pairs.orbit, room, arcs.usable, sources, demands.times, wanted)
    prices = program.prices(seconds)
    return None if prices is None else prices[pairs.orbit]


def _rounded(prices: NDArray[np.float64]) -> Iterator[NDArray[np.int64]]:
    """Whole prices near the given ones, by denominator: small ones hit a true optimum, the last is near anyway."""
    for denominator in _DENOMINATORS:
        yield np.rint(prices * denominator).astype(np.int64)
