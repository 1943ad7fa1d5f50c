"""Trees and paths by negotiation: each avoids links that others load (as in PathFinder).

Every piece of a block gets a tree from its root to the ranks that want it (a path, if one does). A tree grows by the
route whose end is cheapest, alphas along the tree plus `patience` times the seconds that the route's links are busy
with all pieces, this one included:

    patience 0           shortest paths: least latency, but the first link is shared by all
    patience large       idle links first: loads are even, but trees are deep
                         root ──▶ a ──▶ b        a would rather send to b itself than wait for the root's link

Then each tree is removed and grown again while the others stay, as in the routing of circuits (McMurchie and Ebeling,
PathFinder, FPGA'95). Growing by latency plus cost is the trade of Alpert et al., IEEE TCAD 14(7), 1995. Only
the trees of representative ranks (`homes`, ways.py) are grown, so symmetric networks are loaded evenly from the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from syntony.synth.bounds.demand import block_weights
from syntony.synth.engines.engine import Budget, OutOfTimeError
from syntony.synth.engines.teccl.ways import Floats, Ways

PASSES = 2
"""How often every tree is grown again, each time around the current others."""


@dataclass(frozen=True)
class Want:
    """A block of a home, who starts with it, who wants it, and its share of the collective's size."""

    block: int
    root: int
    ranks: tuple[int, ...]
    share: float


@dataclass(frozen=True)
class Hop:
    """A route that one piece of a block takes; `parent` is the hop that brought it there, as a position, or -1."""

    want: int
    piece: int
    route: int
    parent: int


@dataclass(frozen=True)
class Manner:
    """Parameters of growing.

    pieces    equal parts of every block, each with a tree of its own
    patience  what a second of busy links counts, in seconds of latency
    together  whether the links of a route count in sum, or only the busiest
    slack     None: every rank is to be reached early. Else seconds after the last arrival of the shortest paths that
              the slowest branch may end: what comes before costs nothing
    """

    pieces: int
    patience: float
    together: bool
    slack: float | None = None


def wants_of(ways: Ways) -> tuple[Want, ...]:
    """What is to be moved, of the homes' blocks. Of a collective that sums nothing."""
    collective = ways.network.collective
    weights = block_weights(collective)
    unit = float(collective.unit)
    ranks, root = collective.ranks, collective.root
    everybody = tuple(range(ranks))
    match collective.kind:
        case "all_gather":
            return tuple(Want(home, home, everybody, float(weights[home]) * unit) for home in ways.homes)
        case "broadcast":
            return (Want(0, root, everybody, float(weights[0]) * unit),)
        case "gather":
            ends = [(rank, rank, root, weights[rank]) for rank in everybody]
        case "scatter":
            ends = [(rank, root, rank, weights[rank]) for rank in everybody]
        case _:
            ends = [(home * ranks + rank, home, rank, weights[home, rank]) for home in ways.homes for rank in everybody]
    return tuple(Want(block, src, (dst,), float(weight) * unit) for block, src, dst, weight in ends)


def grow_all(ways: Ways, wants: Sequence[Want], size: int, manner: Manner, budget: Budget) -> list[Hop]:
    """Trees for every piece of every want; parents come before their children. Raises OutOfTimeError."""
    load = np.zeros(ways.orbits + 1)
    grown: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for _ in range(PASSES):
        for piece in range(manner.pieces):
            for number, want in enumerate(wants):
                if not budget.left():
                    raise OutOfTimeError(f"engine teccl grew no trees within {budget.timeout:g} s")
                seconds = size * want.share / manner.pieces * ways.occupied
                for route, _ in grown.get((number, piece), ()):
                    np.subtract.at(load, ways.orbit[route], seconds[route])
                grown[number, piece] = _grow(ways, want, size * want.share / manner.pieces, load, manner)
                for route, _ in grown[number, piece]:
                    np.add.at(load, ways.orbit[route], seconds[route])
    hops: list[Hop] = []
    for (number, piece), tree in grown.items():
        first = len(hops)
        hops += [Hop(number, piece, route, parent if parent < 0 else first + parent) for route, parent in tree]
    return hops


def _grow(ways: Ways, want: Want, bytes_: float, load: Floats, manner: Manner) -> list[tuple[int, int]]:
    """Routes of one piece, each with the position of its parent (-1: it leaves the root)."""
    ranks = ways.network.collective.ranks
    alone = len(want.ranks) == 1
    seconds = bytes_ * ways.occupied
    travel = ways.alpha + bytes_ * ways.pace
    load = load.copy()
    since = np.full(ranks, np.inf)
    since[want.root] = 0.0
    came: dict[int, tuple[int, int]] = {}
    tree: list[tuple[int, int]] = []
    missing = set(want.ranks) - {want.root}
    early = None if manner.slack is None or alone else _latest(ways, want.root, travel, manner.slack)
    outside = ways.dst != want.root
    busy = _busy(ways, load, seconds, manner)
    while missing:
        arrival = since[ways.src] + travel
        late = arrival if early is None else np.maximum(arrival - early[ways.dst], 0.0) + 1e-6 * arrival
        key = np.where(outside & np.isfinite(arrival), late + manner.patience * busy, np.inf)
        route = int(np.argmin(key))
        src, dst = int(ways.src[route]), int(ways.dst[route])
        since[dst] = key[route] if alone else since[src] + travel[route]
        came[dst] = (route, len(tree))
        tree.append((route, came[src][1] if src in came else -1))
        missing.discard(dst)
        outside &= ways.dst != dst
        if not alone:
            np.add.at(load, ways.orbit[route], seconds[route])
            busy = _busy(ways, load, seconds, manner)
    return tree if not alone else _path(tree)


def _latest(ways: Ways, root: int, travel: Floats, slack: float) -> Floats:
    """Per rank, when it must be reached for all behind it on shortest paths to be reached within the slack."""
    ranks = ways.network.collective.ranks
    since = np.full(ranks, np.inf)
    since[root] = 0.0
    came: list[tuple[int, int]] = []
    outside = ways.dst != root
    while len(came) < ranks - 1:
        key = np.where(outside, since[ways.src] + travel, np.inf)
        route = int(np.argmin(key))
        src, dst = int(ways.src[route]), int(ways.dst[route])
        since[dst] = key[route]
        came.append((src, dst))
        outside &= ways.dst != dst
    tail = np.zeros(ranks)
    for src, dst in reversed(came):
        tail[src] = max(tail[src], since[dst] - since[src] + tail[dst])
    latest: Floats = float(since.max()) + slack - tail
    return latest


def _busy(ways: Ways, load: Floats, seconds: Floats, manner: Manner) -> Floats:
    """Seconds that the links of every route are busy, this piece included."""
    there = load[ways.orbit] + seconds  # Of no link, both are 0.
    busy: Floats = there.sum(axis=1) if manner.together else there.max(axis=1)
    return busy


def _path(tree: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The branch that leads to the tree's last route."""
    path: list[int] = []
    place = len(tree) - 1
    while place >= 0:
        route, parent = tree[place]
        path.append(route)
        place = parent
    return [(route, number - 1) for number, route in enumerate(reversed(path))]
