r"""The time-expanded program: which chunks cross which route in which epoch.

Time is cut into `count` epochs. What is sent in epoch e over a route that takes d epochs (alpha and bytes, rounded up)
is at its end from epoch e + d on; ranks keep what they have:

    rank 0   (0)───hold───(1)───hold───(2)          a hop of d = 2 epochs leads from (rank 0, epoch 0)
                 \                   ▲               to (rank 1, epoch 2)
    rank 1   (0)───hold───(1)───hold───(2)

    copies, integer      hop(e) <= held(e) at its source; held(e) = held(e - 1) + what arrives(e); at last all hold it
    no copies, linear    held(e) = held(e - 1) + what arrives(e) - what leaves(e); what a rank wants is there at the end
    links                of an orbit: what is sent in any few epochs takes no longer than they last

The windows of "any few epochs" are as long as the longest message of the link. The objective is to send early, so that
a horizon that is too long costs only variables. Switches cut through, so they neither store nor copy. Liu et al.,
SIGCOMM'24, sections 3.1 (copies), 4.1 (none) and 3.2 (epochs).

Epochs round delays up, so the objective is not the real time; the resulting schedules are simulated without rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from syntony.base.deadline import wall
from syntony.synth.engines.flow.paths import paths_of
from syntony.synth.engines.teccl.trees import Hop, Want
from syntony.synth.engines.teccl.ways import Floats, Integers, Ways

MOST_INTEGERS = 6_000
"""Most variables of an integer program, for which HiGHS needs seconds."""
MOST_FLOWS = 20_000
"""Most variables of a linear program."""
MOST_EPOCHS = 40
FEWEST_EPOCHS = 6
"""Coarser grids are useless."""
_LONGER = 1.25
"""The horizon is this many times the time to beat, because epochs round delays up."""
_HASTE = 3
"""The cost of sending late grows with this power of the epoch, because the last arrival counts."""
_UNITS = 1000
"""Units of what each rank wants of a flow, for the decomposition into paths."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Epochs, and the parameters of routes in them, for `goods` things that move independently.

    count     of epochs
    seconds   of an epoch
    delay     (goods, routes)  epochs from sending to having
    busy      (goods, routes, W)  seconds that the route's links are busy
    """

    ways: Ways
    count: int
    seconds: float
    delay: Integers
    busy: Floats

    @staticmethod
    def of(ways: Ways, sizes: Sequence[float], horizon: float, count: int) -> Grid:
        """`sizes`: bytes of one piece of each good; `horizon` in seconds."""
        seconds = horizon / count
        taken = ways.alpha + np.outer(sizes, ways.pace)
        delay = np.maximum(1, np.ceil(taken / seconds - 1e-9)).astype(np.int64)
        return Grid(ways, count, seconds, delay, np.asarray(sizes)[:, None, None] * ways.occupied)


def planned(ways: Ways, wants: Sequence[Want], size: int, pieces: int, horizon: float, limit: float) -> list[Hop]:
    """Hops found by a program in `limit` seconds of its solver, to beat a schedule of `horizon` seconds.

    None if it found none, or would be too large.
    """
    alone = all(len(want.ranks) == 1 for want in wants)
    roots = sorted({want.root for want in wants})
    goods = len(roots) if alone else len(wants) * pieces
    per_epoch = goods * (len(ways.routes) + ways.network.collective.ranks)
    count = min(MOST_EPOCHS, (MOST_FLOWS if alone else MOST_INTEGERS) // max(per_epoch, 1))
    if count < FEWEST_EPOCHS or limit <= 0:
        return []
    horizon *= _LONGER
    if alone:
        share = [max(want.share for want in wants if want.root == root) for root in roots]
        grid = Grid.of(ways, [size * part / pieces for part in share], horizon, count)
        return _flows(grid, wants, roots, size, pieces, limit)
    sizes = [size * want.share / pieces for want in wants for _ in range(pieces)]
    return _copies(Grid.of(ways, sizes, horizon, count), wants, pieces, limit)


class _Rows:
    """A sparse matrix with bounds, row by row."""

    def __init__(self) -> None:
        self.row: list[int] = []
        self.column: list[int] = []
        self.value: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def add(self, terms: Sequence[tuple[int, float]], low: float, high: float) -> None:
        """low <= sum of value * variable over (variable, value) <= high."""
        for column, value in terms:
            self.row.append(len(self.low))
            self.column.append(column)
            self.value.append(value)
        self.low.append(low)
        self.high.append(high)


class _Variables:
    """Numbers of the variables: hops first, by good, route and epoch; then what is held, by good, rank and epoch."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        goods = len(grid.delay)
        self._routes = len(grid.ways.routes)
        self._ranks = grid.ways.network.collective.ranks
        self._hops = goods * self._routes * grid.count
        self.count = self._hops + goods * self._ranks * (grid.count + 1)

    def hop(self, good: int, route: int, epoch: int) -> int:
        return (good * self._routes + route) * self._grid.count + epoch

    def held(self, good: int, rank: int, epoch: int) -> int:
        return self._hops + (good * self._ranks + rank) * (self._grid.count + 1) + epoch


def _solved(
    grid: Grid, rows: _Rows, variables: _Variables, low: Floats, high: Floats, integer: bool, limit: float
) -> Floats | None:
    """The solution that sends earliest; None if none was found in time."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    goods, routes = grid.delay.shape
    cost = np.zeros(variables.count)
    hops = goods * routes * grid.count
    cost[:hops] = np.tile(((1.0 + np.arange(grid.count)) / grid.count) ** _HASTE, goods * routes)
    matrix = csr_array((rows.value, (rows.row, rows.column)), shape=(len(rows.low), variables.count))
    integrality = np.zeros(variables.count)
    integrality[:hops] = integer
    found = milp(
        cost,
        integrality=integrality,
        bounds=Bounds(low, high),
        constraints=LinearConstraint(matrix, np.asarray(rows.low), np.asarray(rows.high)),
        options={"time_limit": wall(limit), "mip_rel_gap": 0.05},
    )
    return None if found.x is None else np.asarray(found.x)


def _links(grid: Grid, rows: _Rows, variables: _Variables, amount: float) -> None:
    """No orbit of links is busy for longer than the window. `amount`: the part of a good per unit of a variable."""
    ways = grid.ways
    for orbit in range(ways.orbits):
        busy = np.where(ways.orbit == orbit, grid.busy, 0.0).sum(axis=2) * amount
        good, route = np.nonzero(busy)
        if not len(good):
            continue
        few = max(1, int(np.ceil(busy.max() / grid.seconds - 1e-9)))
        for last in range(grid.count):
            window = range(max(0, last - few + 1), last + 1)
            terms = [
                (variables.hop(one, way, epoch), float(busy[one, way]))
                for one, way in zip(good.tolist(), route.tolist(), strict=True)
                for epoch in window
            ]
            rows.add(terms, -np.inf, few * grid.seconds)


def _copies(grid: Grid, wants: Sequence[Want], pieces: int, limit: float) -> list[Hop]:
    """The integer program, and its trees."""
    ways, rows, variables = grid.ways, _Rows(), _Variables(grid)
    goods, routes = grid.delay.shape
    ranks = ways.network.collective.ranks
    low, high = np.zeros(variables.count), np.ones(variables.count)
    for good in range(goods):
        root = wants[good // pieces].root
        for rank in range(ranks):
            first, last = variables.held(good, rank, 0), variables.held(good, rank, grid.count)
            low[first] = high[first] = float(rank == root)
            low[last] = 1.0
        for route in range(routes):
            src, dst = int(ways.src[route]), int(ways.dst[route])
            for epoch in range(grid.count):
                hop = variables.hop(good, route, epoch)
                if dst == root or epoch + grid.delay[good, route] > grid.count:
                    high[hop] = 0.0
                rows.add([(hop, 1.0), (variables.held(good, src, epoch), -1.0)], -np.inf, 0.0)
        _keeping(grid, rows, variables, good, leaving=False)
    _links(grid, rows, variables, 1.0)
    solution = _solved(grid, rows, variables, low, high, True, limit)
    return [] if solution is None else _trees(grid, variables, solution, pieces)


def _keeping(grid: Grid, rows: _Rows, variables: _Variables, good: int, leaving: bool) -> None:
    """A rank holds what it held and what has arrived; without copies, less what leaves."""
    ways = grid.ways
    for rank in range(ways.network.collective.ranks):
        arriving = np.flatnonzero(ways.dst == rank).tolist()
        going = np.flatnonzero(ways.src == rank).tolist() if leaving else []
        for epoch in range(1, grid.count + 1):
            terms = [(variables.held(good, rank, epoch), 1.0), (variables.held(good, rank, epoch - 1), -1.0)]
            for route in arriving:
                sent = epoch - int(grid.delay[good, route])
                if sent >= 0:
                    terms.append((variables.hop(good, route, sent), -1.0))
            leaves = [(variables.hop(good, route, epoch - 1), 1.0) for route in going]
            rows.add(terms + leaves, 0.0, 0.0)
            if leaves:
                rows.add([*leaves, (variables.held(good, rank, epoch - 1), -1.0)], -np.inf, 0.0)


def _trees(grid: Grid, variables: _Variables, solution: Floats, pieces: int) -> list[Hop]:
    """The hops of an integer solution, parents first: every rank is reached by what arrives at it first."""
    ways = grid.ways
    goods, routes = grid.delay.shape
    hops: list[Hop] = []
    for good in range(goods):
        sent = []
        for route in range(routes):
            for epoch in range(grid.count):
                if solution[variables.hop(good, route, epoch)] > 0.5:
                    sent.append((epoch + int(grid.delay[good, route]), epoch, route))
        came: dict[int, int] = {}
        for _, _, route in sorted(sent):
            src, dst = int(ways.src[route]), int(ways.dst[route])
            if dst not in came:
                came[dst] = len(hops)
                hops.append(Hop(good // pieces, good % pieces, route, came.get(src, -1)))
    return hops


def _flows(grid: Grid, wants: Sequence[Want], roots: Sequence[int], size: int, pieces: int, limit: float) -> list[Hop]:
    """The linear program, one flow out of every root, and its paths; a unit is the largest share of a root's wants."""
    ways, rows, variables = grid.ways, _Rows(), _Variables(grid)
    ranks, count = ways.network.collective.ranks, grid.count
    low, high = np.zeros(variables.count), np.full(variables.count, np.inf)
    of_root = {root: [want for want in wants if want.root == root] for root in roots}
    amounts: list[dict[int, int]] = []
    for good, root in enumerate(roots):
        most = max(want.share for want in of_root[root])
        wanted = {want.ranks[0]: round(_UNITS * want.share / most) for want in of_root[root] if want.ranks[0] != root}
        amounts.append(wanted)
        for rank in range(ranks):
            first, last = variables.held(good, rank, 0), variables.held(good, rank, count)
            low[first] = high[first] = sum(wanted.values()) if rank == root else 0
            low[last] = high[last] = wanted.get(rank, 0)
        for route in range(len(ways.routes)):
            late = max(0, count - int(grid.delay[good, route]) + 1)
            high[[variables.hop(good, route, epoch) for epoch in range(late, count)]] = 0.0
        _keeping(grid, rows, variables, good, leaving=True)
    _links(grid, rows, variables, pieces / _UNITS)
    solution = _solved(grid, rows, variables, low, high, False, limit)
    if solution is None:
        return []
    hops: list[Hop] = []
    for good, root in enumerate(roots):
        arcs, flow = _arcs(grid, variables, solution, good)
        ends = [(arc[0], arc[1]) for arc in arcs]
        goals = {rank * (count + 1) + count: amount for rank, amount in amounts[good].items() if amount}
        found: dict[int, list[tuple[float, list[int]]]] = {}
        for path in paths_of(good, root * (count + 1), goals, flow, ends):
            routes = [arcs[arc][2] for arc in path.arcs if arcs[arc][2] >= 0]
            found.setdefault(path.end // (count + 1), []).append((path.amount, routes))
        for number, want in enumerate(wants):
            if want.root == root and want.ranks[0] != root:
                hops += _chains(number, found[want.ranks[0]], pieces, len(hops))
    return hops


def _arcs(grid: Grid, variables: _Variables, solution: Floats, good: int) -> tuple[list[tuple[int, int, int]], Floats]:
    """Arcs between (rank, epoch) with the route taken, -1 for holding; and what flows over each."""
    ways, count = grid.ways, grid.count
    arcs: list[tuple[int, int, int]] = []
    flow: list[float] = []
    for rank in range(ways.network.collective.ranks):
        for epoch in range(count):
            # What is held at the next epoch includes what arrives then, and excludes what leaves now.
            begin = rank * (count + 1) + epoch
            gone = sum(solution[variables.hop(good, int(route), epoch)] for route in np.flatnonzero(ways.src == rank))
            arcs.append((begin, begin + 1, -1))
            flow.append(float(solution[variables.held(good, rank, epoch)] - gone))
    for route in range(len(ways.routes)):
        src, dst = int(ways.src[route]), int(ways.dst[route])
        for epoch in range(count):
            sent = float(solution[variables.hop(good, route, epoch)])
            if sent > 0:
                there = dst * (count + 1) + epoch + int(grid.delay[good, route])
                arcs.append((src * (count + 1) + epoch, there, route))
                flow.append(sent)
    return arcs, np.asarray(flow)


def _chains(want: int, paths: list[tuple[float, list[int]]], pieces: int, first: int) -> list[Hop]:
    """Pieces over paths, as many over each as comes nearest to what flows there; `first`: the first hop's position."""
    total = sum(amount for amount, _ in paths)
    left = [amount / total * pieces for amount, _ in paths]
    hops: list[Hop] = []
    for piece in range(pieces):
        most = max(range(len(paths)), key=lambda path: left[path])
        left[most] -= 1.0
        for place, route in enumerate(paths[most][1]):
            hops.append(Hop(want, piece, route, first + len(hops) - 1 if place else -1))
    return hops
