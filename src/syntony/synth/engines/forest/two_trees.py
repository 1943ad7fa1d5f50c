r"""Trees of a broadcast on many equal hosts, from those on two of them.

What enters a host then goes on from host to host, along two binary trees: half of every tree's data along each. A host
passes nothing on in one of them, so in both together it sends as much as it receives, and few hops lead to all hosts
(Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing
35(12), 2009):

      on two hosts:                4               5         hosts 1 .. 7; both trees hang on
      k ──▶ j (host 1)           /   \           /   \      the root's host
                                2     6         3     7
      in every other host:     / \   / \       / \   / \
      j ──▶ the same j        1   3 5   7     2   4 6   1

What two hosts send inside the second one, every host does; what they send back to the root's host, one host does that
has few others to serve.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from syntony.synth.engines.engine import EngineError
from syntony.synth.engines.forest.rerouted import rerouted
from syntony.synth.engines.forest.trees import Trees, on_routes, pairs_of
from syntony.synth.engines.wires import wires_of
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.model.routes import routes_between
from syntony.topologies.hosts import hosts_of
from syntony.topologies.topology import TopologyError

LEAST_HOSTS = 3

Integers = NDArray[np.signedinteger]


def along_two_trees(network: Network, pack: Callable[[Network], Trees], least: float) -> Trees | None:
    """Trees of the network's broadcast; `pack` gives those of a broadcast on two hosts. `least`: seconds per byte that
    no trees can beat.

    None if there are no LEAST_HOSTS equal hosts, or other ranks are between them.
    """
    grid = equal_hosts(network)
    if grid is None or len(grid) < LEAST_HOSTS:
        return None
    collective = network.collective
    place = int(np.flatnonzero(grid[0] == collective.root)[0])
    try:
        two = wires_of(network.topology, np.asarray(collective.members)[grid[:2].reshape(-1)])
        broadcast = Network(two.topology, Collective.make("broadcast", two.topology.ranks, root=place))
        trees = pack(broadcast)
    except EngineError:
        return None
    number = _among_routes(broadcast, trees)
    above = binary_trees(len(grid) - 1)
    halves = [_repeated(trees, number, grid, one, back) for one, back in zip(above, _idle(above), strict=True)]
    parent, way = map(np.concatenate, zip(*halves, strict=True))
    found = on_routes(network, np.tile(trees.weight, 2), parent, way)
    return None if found is None else rerouted(network, found, least)


def binary_trees(hosts: int) -> tuple[Integers, Integers]:
    """Two trees: the parent of each host 1 .. hosts, at [host - 1], 0 for the root's. No host has children in both."""
    one = np.zeros(hosts, np.int64)
    todo = [(1, hosts, 0)]
    while todo:
        first, last, above = todo.pop()
        if first <= last:
            middle = max(range(first, last + 1), key=lambda host: host & -host)
            one[middle - 1] = above
            todo += [(first, middle - 1, middle), (middle + 1, last, middle)]
    moved = np.arange(1, hosts + 1) % hosts + 1 if hosts % 2 else np.arange(hosts, 0, -1)
    other = np.zeros(hosts, np.int64)
    other[moved - 1] = np.concatenate(([0], moved))[one]
    return one, other


def equal_hosts(network: Network) -> Integers | None:
    """(hosts, ranks of a host): ranks of the collective, the root's host first. None if hosts have unequal numbers."""
    members = network.collective.members
    position = {member: rank for rank, member in enumerate(members)}
    try:
        hosts = [[position[rank] for rank in host.ranks if rank in position] for host in hosts_of(network.topology)]
    except TopologyError:
        return None  # a NIC belongs to two
    hosts = [host for host in hosts if host]
    if len({len(host) for host in hosts}) > 1:
        return None
    return np.asarray(sorted(hosts, key=lambda host: network.collective.root not in host))


def _idle(above: tuple[Integers, Integers]) -> list[int]:
    """For each tree the host that serves the fewest others in both trees, counting the root's host."""
    serves = np.sum([np.bincount(parent, minlength=len(parent) + 1) for parent in above], axis=0)[1:]
    hosts = []
    for _ in above:
        hosts.append(int(np.argmin(serves)) + 1)
        serves[hosts[-1] - 1] += 1
    return hosts


def _among_routes(network: Network, trees: Trees) -> Integers:
    """(trees, edges): which of the shortest routes between its ends an edge takes; 0 if it takes a longer one."""
    pairs, pair = pairs_of(trees.src, trees.dst, network.collective.ranks)
    routes = routes_between(network, *pairs)
    shortest = [tuple(routes.link[a:b].tolist()) for a, b in zip(routes.offset[:-1], routes.offset[1:], strict=True)]
    number = np.zeros(trees.src.size, np.int64)
    for edge, (own, route) in enumerate(zip(pair.tolist(), trees.route.reshape(-1).tolist(), strict=True)):
        ways = shortest[routes.first[own] : routes.first[own + 1]]
        taken = tuple(trees.link[trees.offset[route] : trees.offset[route + 1]].tolist())
        number[edge] = ways.index(taken) if taken in ways else 0
    return number.reshape(trees.src.shape)


def _repeated(trees: Trees, number: Integers, grid: Integers, above: Integers, back: int) -> tuple[Integers, Integers]:
    """(trees, ranks): from which rank each one receives, -1 for the root, and over which route between both.

    number  (trees, edges)  which route the edges on two hosts take
    above   (hosts,)        the host above each one
    back    the host that sends to the root's what two hosts send there
    """
    width = grid.shape[1]
    parent = np.full((len(trees.root), grid.size), -1)
    route = np.zeros_like(parent)
    others, home = np.arange(1, len(grid)), np.zeros(1, np.int64)
    for (tree, edge), way in np.ndenumerate(number):
        (src, here), (dst, there) = divmod(int(trees.src[tree, edge]), width), divmod(int(trees.dst[tree, edge]), width)
        to = others if dst else home
        fro = to if src == dst else above if dst else np.full(1, back)
        sender = np.where((fro > 0) & (fro != to) & (to > 0), there, here)  # what has entered a host, from host to host
        parent[tree, grid[to, there]] = grid[fro, sender]
        route[tree, grid[to, there]] = way
    return parent, route
