"""SiP-Ring: ranks on a ring of fibre whose wavelengths are assigned to pairs of ranks, for a given traffic.

        ──0───────1───────2───────3── ...    wavelength 0:  0→1  1→2  2→3       neighbours
          └───────┴───────┘   └───┘          wavelength 1:  0────→2  2→3        0 to 2 passes 1 by

A wavelength carries one circuit over any piece of the ring at a time, but different circuits over pieces that do not
overlap. So near peers are cheap and far ones expensive: no rank that a circuit passes can use its wavelength there.
There are two fibres, one per direction, and a pair takes the shorter way round.

The wavelengths are assigned one by one, each to pairs whose pieces do not overlap. Pairs with the most bytes per
wavelength they would then have come first (D'Hondt's apportionment; the paper rounds the solution of an integer
program). The first wavelength of the forward fibre always joins neighbours, so that every rank reaches every other.

Khani et al.: SiP-ML (SIGCOMM'21), section 3.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np

from syntony.base.quantity import count, rate, seconds
from syntony.topologies.demand import Demand, read_demand
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.families.optical.circuits import Circuits
from syntony.topologies.families.optical.optical import TRAFFIC, wired
from syntony.topologies.graph.wiring import ABSTRACT_ALPHA, require
from syntony.topologies.topology import Topology


def sip_ring(
    ranks: int,
    traffic: str,
    wavelengths: int = 64,
    bandwidth: Fraction = Fraction(3125 * 10**6),
    alpha: float = ABSTRACT_ALPHA,
) -> Topology:
    """`ranks` on two fibres of `wavelengths`, assigned for `traffic`; all wavelengths of a pair are one link.

    Symmetry: that of both the traffic and the circuits.
    """
    require(ranks >= 2, f"sip-ring: ranks is {ranks}; circuits join at least 2")
    require(1 <= wavelengths <= 256, f"sip-ring: wavelengths is {wavelengths}; a fibre has 1 to 256")
    demand = read_demand(traffic, ranks, "sip-ring: traffic").as_pairs()
    circuits: Circuits = Counter({(rank, (rank + 1) % ranks): 1 for rank in range(ranks)})
    forward = (demand.dst - demand.src) % ranks
    ahead = 2 * forward <= ranks
    circuits += _given(ranks, demand, ahead, forward, 1, wavelengths - 1)
    circuits += _given(ranks, demand, ~ahead, ranks - forward, -1, wavelengths)
    return wired(f"sip-ring:{ranks},{traffic},{wavelengths}", demand, circuits, bandwidth, alpha)


def _given(ranks: int, demand: Demand, chosen: np.ndarray, length: np.ndarray, way: int, wavelengths: int) -> Circuits:
    """The circuits of one fibre, for the `chosen` pairs; `way` is 1 where ranks ascend along it, else -1."""
    circuits: Circuits = Counter()
    src, dst, volume, length = demand.src[chosen], demand.dst[chosen], demand.bytes[chosen], length[chosen]
    begin = (way * src) % ranks  # along the fibre
    granted = np.zeros(len(src), dtype=np.int64)
    left = wavelengths if len(src) else 0
    while left:
        order = np.lexsort((begin, length, -volume / (granted + 1)))
        # Position i + ranks of `taken` is position i again, so that pieces that wrap around are slices, too.
        taken, free, winners = bytearray(2 * ranks), ranks, []
        for pair, start, size in zip(order.tolist(), begin[order].tolist(), length[order].tolist(), strict=True):
            if taken.find(1, start, start + size) >= 0:
                continue
            for first in (start - ranks, start, start + ranks):
                low, high = max(first, 0), min(first + size, 2 * ranks)
                if low < high:
                    taken[low:high] = b"\x01" * (high - low)
            winners.append(pair)
            free -= size
            if free == 0:
                break
        alike = left if len(winners) == len(src) else 1  # pairs that all fit together do so on every wavelength
        granted[winners] += alike
        left -= alike
    for one, other, number in zip(src.tolist(), dst.tolist(), granted.tolist(), strict=True):
        circuits[one, other] = number
    return circuits


SIP_RING = Family(
    name="sip-ring",
    build=sip_ring,
    parameters=(
        Parameter("ranks", count, "ranks on the ring"),
        TRAFFIC,
        Parameter("wavelengths", count, "wavelengths of each of the two fibres"),
        Parameter("bandwidth", rate, "bytes/s of a wavelength"),
        Parameter("alpha", seconds, "seconds per circuit"),
    ),
    summary="ranks on a ring of fibre whose wavelengths are assigned to pairs, for a given traffic",
    source="SiP-ML (Khani et al., SIGCOMM'21); wavelengths of 25 Gb/s; latency: that of abstract families",
    example="sip-ring:16,dp4xtp4,wavelengths=8",
)
