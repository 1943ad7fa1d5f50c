"""Ring: every rank has a cable to the next one.

      0 ── 1 ── 2
      │         │
      5 ── 4 ── 3

Two ranks share one cable, not two.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count, rate, seconds
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.wiring import ABSTRACT_ALPHA, ABSTRACT_BANDWIDTH, Wiring, circle, require
from syntony.topologies.topology import Topology


def ring(ranks: int, bandwidth: Fraction = ABSTRACT_BANDWIDTH, alpha: float = ABSTRACT_ALPHA) -> Topology:
    """A ring of `ranks` >= 1. Symmetry: dihedral, of order 2 * ranks."""
    require(ranks >= 1, f"ring: ranks is {ranks}; a ring needs at least 1")
    wiring = Wiring(f"ring:{ranks}")
    for place in circle(ranks):
        wiring.rank(place)
    for i in range(ranks if ranks > 2 else ranks - 1):
        wiring.cable(i, (i + 1) % ranks, bandwidth, alpha)
    turn = tuple((i + 1) % ranks for i in range(ranks))
    mirror = tuple(-i % ranks for i in range(ranks))
    return wiring.topology([turn, mirror])


RING = Family(
    name="ring",
    build=ring,
    parameters=(
        Parameter("ranks", count, "ranks on the ring"),
        Parameter("bandwidth", rate, "bytes/s per link and direction"),
        Parameter("alpha", seconds, "seconds per link"),
    ),
    summary="every rank has a cable to the next one",
    source="abstract; SCCL (PPoPP'21) models the Gigabyte Z52 box with 8 AMD GPUs as a ring of 8",
    example="ring:8",
)
