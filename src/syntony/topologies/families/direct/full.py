r"""Full mesh: a cable between every two ranks.

0 ─── 1
│ \ / │     Every rank is one hop from every other.
│ / \ │
3 ─── 2
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count, rate, seconds
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import ABSTRACT_ALPHA, ABSTRACT_BANDWIDTH, Wiring, circle, require
from syntony.topologies.topology import Topology


def full(ranks: int, bandwidth: Fraction = ABSTRACT_BANDWIDTH, alpha: float = ABSTRACT_ALPHA) -> Topology:
    """A full mesh of 1 to 1024 ranks. Symmetry: every permutation of the ranks."""
    require(1 <= ranks <= 1024, f"full: ranks is {ranks}; a full mesh has 1 to 1024")
    wiring = Wiring(f"full:{ranks}")
    for place in circle(ranks):
        wiring.rank(place)
    for i in range(ranks):
        for j in range(i + 1, ranks):
            wiring.cable(i, j, bandwidth, alpha)
    return wiring.topology(swap_and_turn(ranks, [[i] for i in range(ranks)]))


FULL = Family(
    name="full",
    build=full,
    parameters=(
        Parameter("ranks", count, "ranks in the mesh"),
        Parameter("bandwidth", rate, "bytes/s per link and direction"),
        Parameter("alpha", seconds, "seconds per link"),
    ),
    summary="a cable between every two ranks",
    source="abstract",
    example="full:8",
)
