r"""Jellyfish: switches joined at random, each with the same number of cables.

             0 1       2 3            every switch has `ports`: `network` of them lead to other switches,
              S ─────── S             the rest to servers
             / \     /  │ \
          4 S ───\─/─── S ─ ...       any uniformly random regular graph has short paths and high bisection

Built as in the paper: join random pairs of switches that have free ports and are not joined yet. When there are free
ports but no such pair, remove a random cable and join its two ends to a switch that has two free ports. The same seed
gives the same network everywhere.

Singla, Hong, Popa, Godfrey: Jellyfish: Networking Data Centers Randomly (NSDI'12).
"""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

from syntony.base.quantity import count, rate, seconds
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import ABSTRACT_ALPHA, Wiring, circle, require
from syntony.topologies.topology import Topology

Edge = tuple[int, int]


def jellyfish(
    switches: int,
    ports: int = 24,
    network: int = 12,
    seed: int = 1,
    bandwidth: Fraction = Fraction(125 * 10**6),
    alpha: float = ABSTRACT_ALPHA,
) -> Topology:
    """The paper's RRG(switches, ports, network), with `ports` - `network` servers on every switch.

    If the total number of network ports is odd, one stays free. Symmetry: permute the servers of a switch, on all
    switches alike.
    """
    require(switches >= 2, f"jellyfish: switches is {switches}; it must be at least 2")
    require(
        1 <= network < min(ports, switches),
        f"jellyfish: network is {network}; of {ports} ports at least one leads to a server, and no two switches share "
        f"two cables, so it must be 1 to {min(ports, switches) - 1}",
    )
    require(network >= 2 or switches == 2, f"jellyfish: with network 1 only pairs of {switches} switches are joined")
    servers = ports - network
    wiring = Wiring(f"jellyfish:{switches},{ports},{network},{seed}")
    spread = max(1.0, 1.1 * servers, 4.0 / switches)
    directions = [(x * spread, y * spread) for x, y in circle(switches)]
    for x, y in directions:
        radius = math.hypot(x, y)
        for i in range(servers):
            aside = i - (servers - 1) / 2
            wiring.rank((x + 1.3 * x / radius + aside * y / radius, y + 1.3 * y / radius - aside * x / radius))
    nodes = [wiring.switch(f"s{i}", place) for i, place in enumerate(directions)]
    for i, node in enumerate(nodes):
        for server in range(i * servers, (i + 1) * servers):
            wiring.cable(server, node, bandwidth, alpha)
    for one, other in random_regular(switches, network, Random(seed)):
        wiring.cable(nodes[one], nodes[other], bandwidth, alpha)
    columns = [range(i, switches * servers, servers) for i in range(servers)]
    return wiring.topology(swap_and_turn(switches * (servers + 1), columns))


def random_regular(nodes: int, degree: int, random: Random) -> list[Edge]:
    """Edges (smaller end first, ascending) of a connected random graph in which every node has `degree` neighbours.

    If nodes * degree is odd, one node has one neighbour less. Needs 2 <= degree < nodes, or both 1 and 2.
    """
    while True:
        edges = _joined_at_random(nodes, degree, random)
        if _connected(nodes, edges):
            return edges


def _joined_at_random(nodes: int, degree: int, random: Random) -> list[Edge]:
    free = [degree] * nodes
    edges: dict[Edge, None] = {}  # in the order in which they were made, so that the seed determines the network

    def join(one: int, other: int) -> None:
        edges[min(one, other), max(one, other)] = None
        free[one] -= 1
        free[other] -= 1

    def joined(one: int, other: int) -> bool:
        return one == other or (min(one, other), max(one, other)) in edges

    open_nodes = list(range(nodes))
    while True:
        open_nodes = [node for node in open_nodes if free[node]]
        random.shuffle(open_nodes)
        before = len(edges)
        for one, other in zip(open_nodes[::2], open_nodes[1::2], strict=False):
            if not joined(one, other):
                join(one, other)
        if len(edges) > before:
            continue
        pairs = [(a, b) for i, a in enumerate(open_nodes) for b in open_nodes[i + 1 :] if not joined(a, b)]
        if pairs:
            join(*random.choice(pairs))
            continue
        # Only switches that are all joined to one another have free ports left: make room elsewhere.
        short = next((node for node in open_nodes if free[node] >= 2), None)
        if short is None and len(open_nodes) >= 2:
            one, other = open_nodes[:2]  # one free port each, and joined: replace a cable x-y by one-x and other-y
            candidates = [(x, y) for x, y in edges if not joined(one, x) and not joined(other, y)]
            candidates += [(y, x) for x, y in edges if not joined(one, y) and not joined(other, x)]
        elif short is not None:
            one = other = short
            candidates = [(x, y) for x, y in edges if not joined(short, x) and not joined(short, y)]
        else:
            return sorted(edges)
        if not candidates:
            return sorted(edges)
        x, y = random.choice(candidates)
        del edges[min(x, y), max(x, y)]
        free[x] += 1
        free[y] += 1
        join(one, x)
        join(other, y)


def _connected(nodes: int, edges: list[Edge]) -> bool:
    neighbours: list[list[int]] = [[] for _ in range(nodes)]
    for one, other in edges:
        neighbours[one].append(other)
        neighbours[other].append(one)
    reached = {0}
    frontier = [0]
    for node in frontier:
        for neighbour in neighbours[node]:
            if neighbour not in reached:
                reached.add(neighbour)
                frontier.append(neighbour)
    return len(reached) == nodes


JELLYFISH = Family(
    name="jellyfish",
    build=jellyfish,
    parameters=(
        Parameter("switches", count, "switches"),
        Parameter("ports", count, "ports of a switch"),
        Parameter("network", count, "ports of a switch that lead to other switches; the rest lead to servers"),
        Parameter("seed", count, "seed of the random network"),
        Parameter("bandwidth", rate, "bytes/s per link and direction"),
        Parameter("alpha", seconds, "seconds per link"),
    ),
    summary="servers on switches that are joined at random",
    source="Jellyfish (Singla et al., NSDI'12): gigabit Ethernet; latency: none published, that of abstract families",
    example="jellyfish:10,ports=5,network=3",
)
