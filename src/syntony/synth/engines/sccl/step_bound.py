"""A lower bound on the rounds of S steps, however chunks are cut, by linear programming over the unrolled network.

Allow chunks to be cut arbitrarily and steps to last any time. Then each block is a flow from its owner to each rank
that wants it, through the network unrolled over S steps, and the part of the block that moves over a route in a step is
at least as large as each of these flows there:

    minimize    r_1 + .. + r_S
    such that   flow(b, d, p, s)  <=  moved(b, p, s)                 for every rank d that wants block b
                flow(b, d)  brings all of block b from its owner to d by way of routes and of ranks that wait
                sum of moved over the routes on link e in step s  <=  capacity(e) * r_s

Every schedule satisfies this, so the optimum is a lower bound on R. (If one rank wants a block, `moved` is the flow
itself, and the blocks of one owner are one flow.) Symmetry: the average of a solution's images is a solution, so one
block of each orbit is enough, with the loads of its images added.

The arithmetic of the solver is not exact, so its dual prices are rounded to whole numbers and used as a proof. Given a
price per unit for each link and step, divided among the flows that share a route, the cost of the cheapest paths of all
flows, over what all links of a step earn per round, is a bound for *any* prices. It is computed in whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony.base.deadline import wall
from syntony.synth.bounds.demand import block_weights
from syntony.synth.engines.sccl.step_problem import capacities
from syntony.synth.engines.sccl.step_symmetry import fitting
from syntony.synth.model.network import Network
from syntony.synth.model.routes import Route

MAX_VARIABLES = 200_000
"""Larger programs are not tried: the bound is then 0."""
MAX_DENOMINATOR = 5000
TRIES = 4
"""Prices of a vertex are fractions; a common denominator is looked for up to this one."""
FINE_DENOMINATOR = 10**6
"""Without one, prices are rounded to multiples of one over this, which costs the bound about as much."""
UNREACHED = 2**50

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Flow:
    """What one owner sends, for all owners of its orbit.

    need    (ranks,) units of weight that each rank is to get
    shared  whether they all get the same; otherwise each gets its own
    load    (routes, links) how often the images of a route cross a link
    """

    owner: int
    need: Integers
    shared: bool
    load: Integers

    @property
    def wanting(self) -> list[int]:
        """The ranks that want something."""
        return [int(rank) for rank in np.flatnonzero(self.need)]

    @property
    def sinks(self) -> list[list[int]]:
        """The ranks that each part of the flow serves: one each where they share, else all in one."""
        return [[rank] for rank in self.wanting] if self.shared else [self.wanting]


def least_rounds(network: Network, routes: Sequence[Route], steps: int, seconds: float) -> Fraction:
    """No schedule over these routes has fewer rounds, however finely chunks are cut; 0 where nothing is found in time.

    The collective must sum nothing, and `steps` be at least its distance bound.
    """
    ranks, each = network.collective.ranks, len(routes) * steps
    flows = _flows(network, routes)
    parts = sum(len(flow.sinks) for flow in flows)
    if len(flows) * each + parts * (each + ranks * steps) > MAX_VARIABLES or seconds <= 0:
        return Fraction(0)
    prices = _dual_prices(network, routes, steps, flows, seconds)
    if prices is None:
        return Fraction(0)
    return max(
        _proven(network, routes, flows, *prices, denominator)
        for denominator in (*_common_denominators(*prices), FINE_DENOMINATOR)
    )


def _flows(network: Network, routes: Sequence[Route]) -> list[Flow]:
    """One flow of each orbit of owners."""
    collective, links = network.collective, len(network.topology.links)
    need = np.zeros((collective.ranks, collective.ranks), np.int64)
    weights = block_weights(collective)
    match collective.kind:
        case "all_to_all":
            need[:] = weights
        case "all_gather":
            need[:] = weights[:, None]
        case "gather":
            need[:, collective.root] = weights
        case _:
            need[collective.root] = weights  # scatter; of broadcast, the one block for every rank
    np.fill_diagonal(need, 0)
    position = {member: rank for rank, member in enumerate(collective.members)}
    moves = [
        ([position[nodes[member]] for member in collective.members], network.topology.link_permutation(nodes))
        for nodes in fitting(network, routes)
    ]
    flows = []
    reached: set[int] = set()
    for owner in range(collective.ranks):
        if owner in reached or not need[owner].any():
            continue
        images = {owner: np.arange(links)}
        for rank in (queue := [owner]):
            for ranks_to, links_to in moves:
                if ranks_to[rank] not in images:
                    images[ranks_to[rank]] = np.asarray(links_to)[images[rank]]
                    queue.append(ranks_to[rank])
        reached |= set(images)
        load = np.zeros((len(routes), links), np.int64)
        for number, route in enumerate(routes):
            for image in images.values():
                np.add.at(load[number], image[list(route.links)], 1)
        flows.append(Flow(owner, need[owner], collective.kind in ("all_gather", "broadcast"), load))
    return flows


def _dual_prices(
    network: Network, routes: Sequence[Route], steps: int, flows: list[Flow], seconds: float
) -> tuple[Floats, list[Floats]] | None:
    """Solves the program: prices (links, steps), and how each flow's ranks share them (wanting, routes, steps)."""
    from scipy.optimize import linprog

    ranks, links = network.collective.ranks, len(network.topology.links)
    src, dst = (np.asarray([getattr(route, end) for route in routes]) for end in ("src", "dst"))
    step = np.arange(steps)
    nodes = np.arange(ranks * (steps + 1)).reshape(ranks, steps + 1)
    limits, balance = _Rows(), _Rows()
    room = limits.block(links * steps).reshape(links, steps)
    capacity = np.asarray(capacities(network), np.float64)
    limits.put(room, step[None, :], -capacity[:, None])
    columns, supplies, shares = steps, [], []
    for flow in flows:
        moved = columns + np.arange(len(routes) * steps).reshape(-1, steps)
        columns += moved.size
        number, link = np.nonzero(flow.load)
        limits.put(room[link], moved[number], flow.load[number, link][:, None])
        parts = []
        for sinks in flow.sinks:
            amount = moved
            if flow.shared:
                amount = columns + np.arange(moved.size).reshape(moved.shape)
                columns += moved.size
                copies = limits.block(moved.size).reshape(moved.shape)
                limits.put(copies, amount, 1)
                limits.put(copies, moved, -1)
                parts.append(copies)
            waits = columns + np.arange(ranks * steps).reshape(ranks, steps)
            columns += waits.size
            at = balance.block(nodes.size).reshape(nodes.shape)
            for arcs, tail, head in ((waits, at[:, :-1], at[:, 1:]), (amount, at[src, :-1], at[dst, 1:])):
                balance.put(tail, arcs, 1)
                balance.put(head, arcs, -1)
            supply = np.zeros(nodes.shape)
            supply[sinks, steps] = -flow.need[sinks]
            supply[flow.owner, 0] = flow.need[sinks].sum()
            supplies.append(supply.ravel())
        shares.append(parts)
    cost = np.zeros(columns)
    cost[:steps] = 1
    found = linprog(
        cost,
        limits.matrix(columns),
        np.zeros(limits.count),
        balance.matrix(columns),
        np.concatenate(supplies),
        method="highs",
        options={"time_limit": wall(seconds)},
    )
    if found.status != 0:
        return None
    price = np.maximum(0, -found.ineqlin.marginals)
    return price[room], [price[np.asarray(parts, np.int64).reshape(-1, len(routes), steps)] for parts in shares]


def _common_denominators(prices: Floats, shares: list[Floats]) -> list[int]:
    """The least by which all prices are whole, as far as the solver's arithmetic can tell; a few are worth a try."""
    different = np.unique(np.concatenate([prices.ravel(), *(share.ravel() for share in shares)]).round(9))
    found = []
    for denominator in range(1, MAX_DENOMINATOR):
        multiples = different * denominator
        if np.abs(multiples - np.rint(multiples)).max() < 1e-4:
            found.append(denominator)
            if len(found) == TRIES:
                break
    return found


def _proven(
    network: Network,
    routes: Sequence[Route],
    flows: list[Flow],
    prices: Floats,
    shares: list[Floats],
    denominator: int,
) -> Fraction:
    """The bound that the prices prove when rounded; in whole numbers."""
    price = np.rint(prices * denominator).astype(np.int64)
    earned = int((np.asarray(capacities(network), np.int64) @ price).max())
    if not earned:
        return Fraction(0)
    src, dst = (np.asarray([getattr(route, end) for route in routes]) for end in ("src", "dst"))
    paid = 0
    for flow, share in zip(flows, shares, strict=True):
        cost = (flow.load @ price)[None]
        if flow.shared:
            whole, cost = cost, np.rint(share * denominator).astype(np.int64)
            spent = cost.sum(axis=0)
            cost = np.where(spent > whole, cost * whole // np.maximum(spent, 1), cost)
        away = np.full((len(cost), network.collective.ranks), UNREACHED)
        away[:, flow.owner] = 0
        for step in range(price.shape[1]):
            nearer = away.copy()
            for part in range(len(cost)):
                np.minimum.at(nearer[part], dst, away[part, src] + cost[part, :, step])
            away = nearer
        for part, rank in enumerate(flow.wanting):
            paid += int(flow.need[rank]) * int(away[part if flow.shared else 0, rank])
    return Fraction(paid, earned)


class _Rows:
    """The rows of a sparse matrix in the making."""

    def __init__(self) -> None:
        self.count = 0
        self._entries: list[tuple[Integers, Integers, Floats]] = []

    def block(self, rows: int) -> Integers:
        """Allocates new rows and returns their numbers."""
        self.count += rows
        return np.arange(self.count - rows, self.count)

    def put(self, rows: Integers, columns: Integers, values: Floats | Integers | int) -> None:
        """Adds entries; the three are broadcast against each other."""
        row, column, value = np.broadcast_arrays(rows, columns, values)
        self._entries.append((row.ravel(), column.ravel(), value.ravel().astype(np.float64)))

    def matrix(self, columns: int) -> Any:
        """The matrix, with so many columns."""
        from scipy.sparse import csr_array

        row, column, value = (np.concatenate(part) for part in zip(*self._entries, strict=True))
        return csr_array((value, (row, column)), shape=(self.count, columns))
