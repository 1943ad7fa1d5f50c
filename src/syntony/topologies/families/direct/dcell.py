r"""DCell: a full mesh of cells, each a full mesh of smaller cells, down to servers around a small switch.

DCell of n = 3 servers and level 1: four cells; server j-1 of cell i is joined to server i of cell j, for i < j:

          0.0  0.1  0.2     each cell: 3 servers around a mini-switch
           │    │    │
           │    │    └──────────── 3.0
           │    └───────── 2.0
          1.0 ── 1.1..2.1 ...      every two cells share one cable

A level-k DCell has one more cell than a cell has servers: t_k = t_(k-1) (t_(k-1) + 1) servers, 3, 12, 156, 24492 ...
for n = 3. Guo et al.: DCell (SIGCOMM'08).
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

from syntony.base.quantity import count, rate, seconds
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import ABSTRACT_ALPHA, Place, Wiring, circle, require
from syntony.topologies.topology import Permutation, Topology


def dcell(
    servers: int, level: int, bandwidth: Fraction = Fraction(125 * 10**6), alpha: float = ABSTRACT_ALPHA
) -> Topology:
    """The DCell of `level` with `servers` per mini-switch.

    Symmetry: all permutations of the servers at level 0, of the cells at level 1; above, the reversal of all numbers
    (under the paper's rule of wiring, no other symmetry acts on whole cells).
    """
    require(servers >= 2, f"dcell: servers is {servers}; a mini-switch joins at least 2")
    sizes = [servers]
    for _ in range(level):
        require(sizes[-1] <= 1000, f"dcell: level {level} with {servers} servers has over a million servers")
        sizes.append(sizes[-1] * (sizes[-1] + 1))
    total = sizes[-1]
    wiring = Wiring(f"dcell:{servers},{level}")
    for place in _places(sizes, servers):
        wiring.rank(place)
    switches = [wiring.switch(f"s{first // servers}", place) for first, place in _hubs(sizes, servers)]
    for server in range(total):
        wiring.cable(server, switches[server // servers], bandwidth, alpha)
    for size, whole in itertools.pairwise(sizes):
        for start in range(0, total, whole):
            for i, j in itertools.combinations(range(size + 1), 2):
                wiring.cable(start + i * size + j - 1, start + j * size + i, bandwidth, alpha)
    return wiring.topology(_symmetries(servers, level, total, switches))


def _symmetries(servers: int, level: int, total: int, switches: list[int]) -> list[Permutation]:
    size = total + len(switches)
    if level == 0:
        return swap_and_turn(size, [[server] for server in range(servers)])
    if level > 1:
        return [(*reversed(range(total)), *reversed(switches))]
    cells = servers + 1

    def towards(i: int, j: int) -> int:
        """The server of cell i whose cable leads to cell j."""
        return i * servers + (j - 1 if i < j else j)

    def permuted(image: list[int]) -> Permutation:
        moved = list(range(size))
        for i, j in itertools.permutations(range(cells), 2):
            moved[towards(i, j)] = towards(image[i], image[j])
        for i in range(cells):
            moved[switches[i]] = switches[image[i]]
        return tuple(moved)

    return [permuted([1, 0, *range(2, cells)]), permuted([*range(1, cells), 0])]


def _places(sizes: list[int], servers: int) -> list[Place]:
    """Circles of circles."""
    return [(x + dx, y + dy) for _, (x, y) in _hubs(sizes, servers) for dx, dy in _ring(servers)]


def _ring(servers: int) -> list[Place]:
    spread = max(1.0, 2.2 / servers)
    return [(spread * x, spread * y) for x, y in circle(servers)]


def _hubs(sizes: list[int], servers: int) -> list[tuple[int, Place]]:
    """The first server of every mini-switch, and the coordinates of the switch."""
    centres: list[Place] = [(0.0, 0.0)]
    radius = math.hypot(*_ring(servers)[0]) + 0.6
    rings = []
    for size in sizes[:-1]:
        spread = 2 * radius  # neighbouring cells touch
        ring = [(spread * x, spread * y) for x, y in circle(size + 1)]
        rings.append(ring)
        radius += math.hypot(*ring[0])
    for ring in reversed(rings):
        centres = [(x + dx, y + dy) for x, y in centres for dx, dy in ring]
    return [(i * servers, centre) for i, centre in enumerate(centres)]


DCELL = Family(
    name="dcell",
    build=dcell,
    parameters=(
        Parameter("servers", count, "servers around a mini-switch"),
        Parameter("level", count, "levels of full meshes of cells; 0 is one mini-switch"),
        Parameter("bandwidth", rate, "bytes/s per link and direction"),
        Parameter("alpha", seconds, "seconds per link"),
    ),
    summary="a full mesh of cells of servers, recursively",
    source="DCell (Guo et al., SIGCOMM'08): gigabit Ethernet; latency: none published, that of abstract families",
    example="dcell:4,1",
)
