r"""Graphcore's Pod: IPU-Links in a ladder that is closed to a loop, over the machines of a rack.

      0 ══ 1         machine 0: four IPUs, two rungs            ═ a rung, │ a rail
      │    │
      2 ══ 3
      │    │         rails go on from machine to machine,
      4 ══ 5         the last one's to the first's
      ..

It is a torus of 2 x (2 machines), whose rungs have more links than its rails.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count, rate, seconds
from syntony.topologies.families.direct.grid import grid
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.wiring import require
from syntony.topologies.topology import Topology


def graphcore_pod(
    machines: int = 16,
    bandwidth: Fraction = Fraction(64 * 10**9),
    rung_bandwidth: Fraction = Fraction(128 * 10**9),
    alpha: float = 0.35e-6,
) -> Topology:
    """`machines` of four IPUs. Symmetry as `torus`."""
    require(machines >= 1, f"graphcore-pod: machines is {machines}; it must be at least 1")
    sizes = (2 * machines, 2)
    return grid("graphcore-pod", sizes, (bandwidth, rung_bandwidth), alpha, wraps=[machines > 1, False])


GRAPHCORE_POD = Family(
    name="graphcore-pod",
    build=graphcore_pod,
    parameters=(
        Parameter("machines", count, "machines of four IPUs; a rack of Pod64 has 16"),
        Parameter("bandwidth", rate, "bytes/s of a rail between two IPUs, per direction"),
        Parameter("rung_bandwidth", rate, "bytes/s of a rung, per direction"),
        Parameter("alpha", seconds, "seconds per IPU-Link"),
    ),
    summary="Graphcore Pods: machines of four IPUs, IPU-Links in a closed ladder",
    source="Graphcore, IPU-M2000 and Pod64 reference design: ten IPU-Links of 64 GB/s per IPU, both directions in "
    "one; a ladder closed to a 2D torus over a rack (quoted from memory). A rung is taken as four links, a rail as "
    "two; latency: none published, half of NVLink's in TACCL (NSDI'23) table 1",
    example="graphcore-pod:4",
)
