"""Cerebras' wafer: cores on a rectangle, a link to each neighbour, open ends.

A core's router takes and gives 32 bits in a cycle on each of its four sides, and the next core has them a cycle later.
A whole wafer has some 850,000 cores; collectives among so many are shown on a part of it, of the same rates.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import rate, seconds, shape
from syntony.topologies.families.direct.grid import grid
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.wiring import require
from syntony.topologies.topology import Topology


def wafer(
    shape: tuple[int, ...] = (16, 16), bandwidth: Fraction = Fraction(4 * 10**9), alpha: float = 1e-9
) -> Topology:
    """A rectangle of cores. Symmetry as `mesh`."""
    written = "x".join(map(str, shape))
    require(len(shape) == 2, f"wafer: shape is {written}; a wafer has two dimensions, such as 16x16")
    return grid("wafer", shape, (bandwidth,), alpha, wraps=[False, False])


WAFER = Family(
    name="wafer",
    build=wafer,
    parameters=(
        Parameter("shape", shape, "cores along each dimension"),
        Parameter("bandwidth", rate, "bytes/s between two cores, per direction"),
        Parameter("alpha", seconds, "seconds per hop"),
    ),
    summary="a rectangle of Cerebras' wafer: cores with links to their neighbours",
    source="Cerebras WSE-2 data sheet: 850,000 cores, 220 Pb/s of fabric, which is 32 bits per core, side and "
    "direction at 1 GHz; a hop takes a cycle: Rocki et al., Fast Stencil-Code Computation on a "
    "Wafer-Scale Processor (SC'20)",
    example="wafer:8x8",
)
