"""Price bounds, for all_to_all: the dual of multi-commodity flow.

Put a price per byte on every link. A byte from s to d pays at least the cheapest path from s to d, and in one second
the network earns at most sum(price * bandwidth). So *any* prices prove

    seconds per byte of size  >=  sum over s, d of share(s, d) * cheapest(s, d)  /  sum of price * bandwidth

(a cut is the special case of price 1 on its exits). Nothing is copied or summed on its way from one source to one
destination, so switches that could do either change nothing.

The best prices are the dual solution of the flow LP, which HiGHS solves in floating point. They are then rounded to
fractions and the bound is recomputed exactly from those: rounding can weaken the bound but never make it false.

Symmetry: averaging a solution over a group of automorphisms keeps it a solution, so some best prices are equal within
each orbit of links, and one source per orbit stands for all:

    minimize t   such that   the flow f_s of each representative s meets its demands,
                             for each orbit O of links:  sum over s of |orbit of s| * f_s(O)  <=  t * bandwidth(O)

A torus of 4,096 has one source and a handful of link orbits, where the whole LP has millions of variables.

Beyond the LP's reach cuts serve: of single members, and of islands that hang together by faster links.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from synth.bounds.arcs import Arcs
from synth.bounds.bound import Cut, Prices, Witness
from synth.bounds.cut import cut_of
from synth.bounds.demand import block_weights, fitting_generators, member_orbits
from synth.bounds.islands import islands
from synth.bounds.pairs import Pairs
from synth.network import Network

MAX_LP_VARIABLES = 30_000
_DENOMINATORS = (1, 2, 3, 4, 5, 6, 8, 12, 60, 840, 2**20)
_WORD = 2**63


class Priced(NamedTuple):
    """The best bound found and where it was looked for."""

    witness: Witness
    searched: str


def priced(network: Network, arcs: Arcs) -> Priced:
    """The best prices found for an all_to_all between at least two members."""
    demands = _Demands.of(network, arcs)
    variables = len(demands.sources) * len(demands.pairs.tails)
    best: Witness = max(_cuts(demands), key=_rate)
    searched = f"cuts of members and islands, and equal prices (the flow LP has {variables} variables)"
    candidates = [np.ones(len(demands.pairs.tails), np.int64)]
    if variables <= MAX_LP_VARIABLES:
        searched = f"all prices (flow LP, {variables} variables)"
        candidates += _rounded(_flow_dual(demands))
    for prices in candidates:
        found = demands.evaluate(prices)
        if found is not None and _rate(found) > _rate(best):
            best = found
    return Priced(best, searched)


def _rate(witness: Witness) -> Fraction:
    return witness.share / witness.bandwidth


@dataclass(frozen=True)
class _Demands:
    """Who sends what to whom, up to symmetry.

    sources[i]   position among the members of a source that stands for `times[i]` of them
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
    def of(network: Network, arcs: Arcs) -> _Demands:
        generators = fitting_generators(network)
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
        """The exact bound that prices per pair, equal within orbits, prove; None where all are zero."""
        earned = sum(price * capacity for price, capacity in zip(prices.tolist(), self.pairs.capacity, strict=True))
        if not earned:
            return None
        owed = 0
        for times, source, distances in zip(self.times, self.sources, self._distances(prices), strict=True):
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

    def _distances(self, prices: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Per source the price of the cheapest path to each member; whole numbers, below 2^53 and so exact."""
        from csrc._core import ShortestPaths

        pairs = self.pairs
        assert int(prices.max()) * self.arcs.nodes < 2**53
        paths = ShortestPaths(self.arcs.nodes, pairs.tails, pairs.heads, prices.astype(np.float64))
        for source in self.sources:
            yield paths.distances(int(self.members[source]))[self.members].astype(np.int64)


def _cuts(demands: _Demands) -> Iterator[Cut]:
    """The most crowded among single members and islands, leaving and entering."""
    for entering in (False, True):
        graph = demands.arcs.reversed() if entering else demands.arcs
        table = demands.table.T if entering else demands.table
        exits = np.zeros(graph.nodes, object)
        np.add.at(exits, graph.tails, np.asarray(graph.capacity, object))
        rates = [
            (Fraction(int(table[source].sum()), exits[demands.members[source]]), source) for source in demands.sources
        ]
        rate, source = max(rates)
        crowded = [(rate, np.arange(graph.nodes) == demands.members[source])]
        for whole in islands(graph, demands.members):
            for inside in whole:
                here = inside[demands.members]
                capacity = sum(graph.capacity[arc] for arc in graph.leaving(inside))
                crowded.append((Fraction(int(table[here][:, ~here].sum()), capacity), inside))
        rate, inside = max(crowded, key=lambda found: found[0])
        yield cut_of(graph, inside, rate * demands.unit / graph.unit, entering)


def _flow_dual(demands: _Demands) -> NDArray[np.float64]:
    """Dual prices per pair, scaled to a greatest of 1; all zero where the solver gives up."""
    from scipy.optimize import linprog
    from scipy.sparse import block_diag, coo_array, csr_array, hstack

    pairs, arcs, count = demands.pairs, demands.arcs, len(demands.pairs.tails)
    columns, ones = np.arange(count), np.ones(count)
    balance = csr_array(
        coo_array((ones, (pairs.heads, columns)), shape=(arcs.nodes, count))
        - coo_array((ones, (pairs.tails, columns)), shape=(arcs.nodes, count))
    )
    rows, wanted = [], []
    for source in demands.sources:
        received = np.zeros(arcs.nodes)
        received[demands.members] = demands.table[source]
        kept = np.flatnonzero(arcs.usable & (np.arange(arcs.nodes) != demands.members[source]))
        rows.append(balance[kept])
        wanted.append(received[kept])
    flows = block_diag(rows)
    orbits = int(pairs.orbit.max()) + 1
    capacity = np.zeros(orbits)
    np.add.at(capacity, pairs.orbit, np.asarray(pairs.capacity, np.float64))
    within = coo_array((ones, (pairs.orbit, columns)), shape=(orbits, count))
    load = hstack([within * float(times) for times in demands.times] + [csr_array(-capacity.reshape(-1, 1))])
    objective = np.zeros(load.shape[1])
    objective[-1] = 1.0
    solved = linprog(
        objective,
        load.tocsr(),
        np.zeros(orbits),
        hstack([flows, csr_array((flows.shape[0], 1))]).tocsr(),
        np.concatenate(wanted),
        method="highs",
    )
    if not solved.success:
        return np.zeros(count)
    prices = np.maximum(-np.asarray(solved.ineqlin.marginals), 0.0)
    top = float(prices.max(initial=0.0))
    scaled: NDArray[np.float64] = (prices / top if top > 0 else prices)[pairs.orbit]
    return scaled


def _rounded(prices: NDArray[np.float64]) -> Iterator[NDArray[np.int64]]:
    """Whole prices near the given ones, by denominator: small ones hit a true optimum, the last is near anyway."""
    for denominator in _DENOMINATORS:
        yield np.rint(prices * denominator).astype(np.int64)
