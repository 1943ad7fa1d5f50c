r"""DGX-1: the hybrid cube mesh, with V100 or P100 GPUs.

Eight GPUs at the corners of a cube; two opposite faces also have their diagonals. Each V100 has six NVLinks to four
neighbours: two neighbours over a pair of NVLinks (═), two over a single one (─). Each P100 has four NVLinks to the same
four neighbours, all of them single.

        0 ════ 1               face A            face B        between the faces
        │\    /║               0 ═ 1             4 ═ 5             0 ═ 4
        │  \/  ║               1 ═ 3             5 ═ 7             2 ═ 6
        │  /\  ║               3 ═ 2             7 ═ 6             1 ─ 5
        │/    \║               0 ─ 2             4 ─ 6             3 ─ 7
        2 ════ 3               0 ─ 3, 1 ─ 2      4 ─ 7, 5 ─ 6

A pair of NVLinks between the same two GPUs carries one stream striped over both, so it is one link of twice the
bandwidth. In units of one NVLink, all-gather then takes at least 7/6 rounds per chunk (seven chunks enter each GPU over
six NVLinks), and two hops separate the furthest GPUs: SCCL's bounds.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import rate, seconds
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.topology import Topology

NVLINK1_BANDWIDTH = Fraction(20 * 10**9)
NVLINK2_BANDWIDTH = Fraction(25 * 10**9)
NVLINK_ALPHA = 0.7e-6

_PAIRS = ((0, 1), (1, 3), (3, 2), (4, 5), (5, 7), (7, 6), (0, 4), (2, 6))
_SINGLES = ((0, 2), (0, 3), (1, 2), (4, 6), (4, 7), (5, 6), (1, 5), (3, 7))

DGX1_WIRES = tuple(
    (src, dst, pairs is _PAIRS) for pairs in (_PAIRS, _SINGLES) for ends in pairs for src, dst in (ends, ends[::-1])
)
"""Source, destination, and whether it is a pair of NVLinks; of every link of the V100 box."""

_PLACES = ((1.0, 2.5), (0.0, 2.0), (1.0, 0.5), (0.0, 0.0), (2.5, 2.5), (3.5, 2.0), (2.5, 0.5), (3.5, 0.0))

_FACES = (4, 5, 6, 7, 0, 1, 2, 3)
_UPSIDE_DOWN = (2, 3, 0, 1, 6, 7, 4, 5)


def dgx1(bandwidth: Fraction = NVLINK2_BANDWIDTH, alpha: float = NVLINK_ALPHA) -> Topology:
    """Eight V100s; `bandwidth` is that of one NVLink per direction. Symmetry: swap the faces, turn upside down."""
    return _cube_mesh("dgx1", 2 * bandwidth, bandwidth, alpha).topology([_FACES, _UPSIDE_DOWN])


def dgx1_p100(bandwidth: Fraction = NVLINK1_BANDWIDTH, alpha: float = NVLINK_ALPHA) -> Topology:
    """Eight P100s; `bandwidth` is that of one NVLink per direction. Symmetry: permute the corners of both faces alike;
    swap the faces."""
    corners = swap_and_turn(8, [[corner, corner + 4] for corner in range(4)])
    return _cube_mesh("dgx1-p100", bandwidth, bandwidth, alpha).topology([_FACES, *corners])


def _cube_mesh(name: str, pair: Fraction, single: Fraction, alpha: float) -> Wiring:
    wiring = Wiring(name)
    for place in _PLACES:
        wiring.rank(place)
    for one, other in _PAIRS:
        wiring.cable(one, other, pair, alpha)
    for one, other in _SINGLES:
        wiring.cable(one, other, single, alpha)
    return wiring


DGX1 = Family(
    name="dgx1",
    build=dgx1,
    parameters=(
        Parameter("bandwidth", rate, "bytes/s of one NVLink per direction; pairs have twice that"),
        Parameter("alpha", seconds, "seconds per link"),
    ),
    summary="NVIDIA DGX-1: eight V100 in a hybrid cube mesh of NVLinks",
    source="wiring: SCCL (PPoPP'21), NVIDIA DGX-1 white paper; 25e9 bytes/s per NVLink 2 and direction: NVIDIA V100 "
    "white paper; 0.7e-6 s: TACCL (NSDI'23) table 1",
    example="dgx1",
)

DGX1_P100 = Family(
    name="dgx1-p100",
    build=dgx1_p100,
    parameters=(
        Parameter("bandwidth", rate, "bytes/s of one NVLink per direction"),
        Parameter("alpha", seconds, "seconds per link"),
    ),
    summary="NVIDIA DGX-1: eight P100 in a hybrid cube mesh of NVLinks",
    source="NVIDIA DGX-1 white paper (2016): four NVLinks per P100, 20e9 bytes/s each per direction; 0.7e-6 s: TACCL "
    "(NSDI'23) table 1, measured on V100",
    example="dgx1-p100",
)
