r"""Trees of a broadcast on large hosts, where NICs add to what the wires inside a host bring to each rank.

Every other rank of the root's host gets a share. It passes the share on inside the host and, by its NIC, along a binary
tree of hosts; in each of these the rank at the same place passes it on inside. That fills the wires inside, but NICs
are hardly busy. So some more shares go from NIC to NIC, and never inside a host:

    shares of ranks 1 .. 3 of a host              one from NIC to NIC: each rank has up to `beside`
      r ──▶ 1 ──▶ 2 3       the root's host       children in one of these trees, and few in the others
            ║                                       r ══▶ a ══▶ b, c, d
            1 ──▶ 0 2 3     another                       b ══▶ e, f, g  ..

All shares are equal, so lanes that meet on a link keep the same pace, and none waits for another. NVL72 x 4: 71 shares
and 3 from NIC to NIC, four on every link, have 6 hops at 2.7 % above the bound; trees that meet it have 116.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntony.synth.engines.forest.trees import ROUNDING, Trees, on_routes
from syntony.synth.engines.forest.two_trees import binary_trees, equal_hosts
from syntony.synth.model.network import Network
from syntony.synth.model.routes import routes_between

PLANES = 64
"""At most so many routes between two ranks are used: the switches of a host."""

Integers = NDArray[np.signedinteger]


def nic_to_nic(network: Network) -> Trees | None:
    """The trees; None if NICs have no room for more than the shares, or do not reach all others. They may be slower
    than others."""
    grid = equal_hosts(network)
    if grid is None or min(grid.shape) < 2:
        return None
    place = int(np.flatnonzero(grid[0] == network.collective.root)[0])
    grid[:, [0, place]] = grid[:, [place, 0]]
    shares = _shares(grid)
    trees = _routed(network, grid, shares)
    if trees is None:
        return None
    across = routes_between(network, grid[0, 1:2], grid[1, 1:2])
    nic = min(float(network.topology.links[link].bandwidth) for link in across.link[: across.offset[1]])
    room = trees.seconds_per_byte(network.topology) * len(shares) * nic * (1 + ROUNDING)
    if room < 2 * (1 + 2 * ROUNDING):
        return None  # NICs limit the shares: along a binary tree, some send two
    more = _beside(grid, shares, int(room) - 1)
    return None if more is None else _routed(network, grid, np.concatenate([shares, more]))


def _routed(network: Network, grid: Integers, parent: Integers) -> Trees | None:
    """Equal trees, `parent` in places of the grid, over routes that take turns by the distance between the places."""
    way = np.arange(grid.size) - parent
    order = grid.reshape(-1)
    of_rank = np.argsort(order)
    by_rank = np.where(parent < 0, -1, order[parent])[:, of_rank]
    return on_routes(network, np.ones(len(parent), np.int64), by_rank, way[:, of_rank], PLANES)


def _shares(grid: Integers) -> Integers:
    """(trees, places): from which place each one receives the share of each rank beside the root; -1 for the root."""
    hosts, width = grid.shape
    place = np.arange(grid.size).reshape(grid.shape)
    parent = np.empty((width - 1, grid.size), np.int64)
    above = binary_trees(hosts - 1)
    for column, tree in enumerate(parent, start=1):
        tree[:] = np.repeat(place[:, column], width)
        tree[place[1:, column]] = place[above[column % 2], column]
        tree[column], tree[0] = 0, -1
    return parent


def _beside(grid: Integers, shares: Integers, beside: int) -> Integers | None:
    """(beside, places): trees between hosts alone, in which a NIC serves as many as the shares leave room for.

    None if a host is left for which no other one has room.
    """
    hosts, width = grid.shape
    host = np.arange(grid.size) // width
    across = (shares >= 0) & (host[shares] != host)
    room = beside + 1 - np.bincount(shares[across], minlength=grid.size)
    most = (1 + np.argsort(-room[1:], kind="stable")).tolist()
    parent = np.full((beside, grid.size), -1)
    for number, tree in enumerate(parent):
        inner = set(most[number::beside])
        waiting = [[rank for rank in reversed(most) if host[rank] == own and rank in inner] for own in range(hosts)]
        leaves = [[rank for rank in reversed(most) if host[rank] == own and rank not in inner] for own in range(hosts)]
        reached = [0]
        for rank in reached:  # grows
            for _ in range(1 if rank == 0 else int(room[rank])):
                for queues in (waiting, leaves):
                    fullest = max((len(queue), own) for own, queue in enumerate(queues) if own != host[rank])
                    if fullest[0]:
                        child = queues[fullest[1]].pop()
                        tree[child] = rank
                        room[rank] -= rank != 0
                        reached.append(child)
                        break
        if len(reached) < grid.size:
            return None
    return parent
