r"""Dragonfly: groups of routers, all joined within a group, and every two groups by a global cable.

        group 0                  group 1           a routers in a group, a cable between every two of them
      r0 ─── r1                 r0 ─── r1          p ranks on each router
      │ \   / │   global cable  │ \   / │          h global cables from each router
      │  \ /  ├─────────────────┤  \ /  │          g groups, at most a h + 1
      │  / \  │                 │  / \  │
      r2 ─── r3                 r2 ─── r3          A message passes one global cable at most, on the shortest path.

With g = a h + 1 groups, every two share exactly one global cable; with fewer, they share a h / (g - 1), rounded down.
The paper does not say which router has which global cable; here `global_cables.py` does.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

from syntony.base.quantity import count, rate, seconds
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.families.switched.global_cables import Circle, global_cables, is_mirrored
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, require, spread
from syntony.topologies.topology import Permutation, Topology

SLINGSHOT_BANDWIDTH = Fraction(25 * 10**9)
SLINGSHOT_ALPHA = 0.35e-6


def dragonfly(
    a: int = 4,
    p: int = 2,
    h: int = 2,
    g: int = 0,
    bandwidth: Fraction = SLINGSHOT_BANDWIDTH,
    local_bandwidth: Fraction = SLINGSHOT_BANDWIDTH,
    global_bandwidth: Fraction = SLINGSHOT_BANDWIDTH,
    alpha: float = SLINGSHOT_ALPHA,
) -> Topology:
    """`g` groups (0: the most, a h + 1) of `a` routers with `p` ranks and `h` global cables each.

    Symmetry: turn the circle of groups; mirror it, where all global ports are used; permute the ranks of a router.
    """
    for what, number in (("a", a), ("p", p), ("h", h)):
        require(number >= 1, f"dragonfly: {what} is {number}; it must be at least 1")
    groups = g or a * h + 1
    require(groups <= a * h + 1, f"dragonfly: g is {g}; {a} routers with {h} global cables reach {a * h + 1} groups")
    wiring = Wiring("dragonfly")
    pitch = max(0.8 * p, 1.1)
    circle = Circle(groups, pitch * a + 0.8)
    columns = spread(0.0, 0.0, a, pitch)
    ranks = [
        [[wiring.rank(circle.place(i, x, 1.6)) for x in spread(column, column, p, 0.8)] for column in columns]
        for i in range(groups)
    ]
    routers = []
    for i in range(groups):
        row = []
        for j, column in enumerate(columns):
            inwards = (
                0.3 * a * (1 - (2 * (j + 0.5) / a - 1) ** 2)
            )  # on an arc, so that no local cable is drawn over another
            row.append(wiring.switch(f"r{i}.{j}", circle.place(i, column, -inwards)))
        routers.append(row)
    for i in range(groups):
        for j in range(a):
            for rank in ranks[i][j]:
                wiring.cable(rank, routers[i][j], bandwidth, alpha)
        for one, other in combinations(routers[i], 2):
            wiring.cable(one, other, local_bandwidth, alpha)
    for (here, port), (there, end) in global_cables(groups, a * h):
        wiring.cable(routers[here][port // h], routers[there][end // h], global_bandwidth, alpha)

    def moved(to: list[tuple[int, int]]) -> Permutation:
        """The permutation that moves the routers of each group, with their ranks, as `to` says."""
        image = [0] * wiring.size
        for i in range(groups):
            for j in range(a):
                to_group, to_router = to[i * a + j]
                for k in range(p):
                    image[ranks[i][j][k]] = ranks[to_group][to_router][k]
                image[routers[i][j]] = routers[to_group][to_router]
        return tuple(image)

    everywhere = [(i, j) for i in range(groups) for j in range(a)]
    generators = [moved([((i + 1) % groups, j) for i, j in everywhere])]
    mirrored = is_mirrored(groups, a * h)
    if mirrored:
        generators.append(moved([(-i % groups, a - 1 - j) for i, j in everywhere]))
    for j in range((a + 1) // 2 if mirrored else a):
        generators += swap_and_turn(wiring.size, [[rank] for rank in ranks[0][j]])
    return wiring.topology(generators)


DRAGONFLY = Family(
    name="dragonfly",
    build=dragonfly,
    parameters=(
        Parameter("a", count, "routers in a group"),
        Parameter("p", count, "ranks on a router"),
        Parameter("h", count, "global cables of a router"),
        Parameter("g", count, "groups, at most a h + 1; 0: that many"),
        Parameter("bandwidth", rate, "bytes/s between a rank and its router, per direction"),
        Parameter("local_bandwidth", rate, "bytes/s of a cable within a group, per direction"),
        Parameter("global_bandwidth", rate, "bytes/s of a cable between groups, per direction"),
        Parameter("alpha", seconds, "seconds per link"),
    ),
    summary="groups of routers, fully joined inside, every two groups by a global cable",
    source="Kim, Dally, Scott, Abts, ISCA'08, section 3; rates: HPE Slingshot, 200 Gb/s a port and 350 ns a switch "
    "(De Sensi et al., SC'20)",
    example="dragonfly:a=4,p=2,h=2,g=9",
)
