r"""A box of eight AMD MI250: sixteen GPU dies, wired to one another by 1, 2 or 4 xGMI links.

Each module (OAM) is two dies (GCDs), which ROCm shows as two GPUs. As RCCL's machine file lists them:

         0 ≡≡≡≡ 1 ──── 2 ≡≡≡≡ 3        ≡ four links, within a module
         ║      │      │      ║        ═ two links
         ║      │      │      ║        ─ one link; not drawn: 0-2, 1-3, 8-10, 9-11
         4 ≡≡≡≡ 5      6 ≡≡≡≡ 7
         │      │ \  / │      │
         │      │ /  \ │      │
        12 ≡≡≡ 13     14 ≡≡≡ 15
         ║      │      │      ║
         ║      │      │      ║
         8 ≡≡≡≡ 9 ─── 10 ≡≡≡ 11

Six links leave every module, so 14 shards enter a module over six links: ForestColl's bound 7/150 (links of 50).
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count
from syntony.topologies.families.boxes.rates import NETWORK_ALPHA, PCIE4_BANDWIDTH, PCIE_ALPHA, BoxRates, box_parameters
from syntony.topologies.families.boxes.scale_out import Nics, scale_out
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.topology import Topology

XGMI_ALPHA = 0.7e-6

_LINKS = {
    4: ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13), (14, 15)),
    2: ((0, 4), (3, 7), (8, 12), (11, 15)),
    1: ((0, 2), (1, 2), (1, 3), (1, 5), (2, 6), (4, 12), (5, 13), (5, 14), (6, 13), (6, 14), (7, 15),
        (8, 10), (9, 10), (9, 11), (9, 13), (10, 14)),
}  # fmt: skip

_ROWS = ((0, 1, 2, 3), (4, 5, 6, 7), (12, 13, 14, 15), (8, 9, 10, 11))
_LEFT_RIGHT = (3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12)
_UPSIDE_DOWN = (8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)

_RATES = BoxRates(Fraction(50 * 10**9), XGMI_ALPHA, PCIE4_BANDWIDTH, PCIE_ALPHA, Fraction(25 * 10**9), NETWORK_ALPHA)


def mi250(
    boxes: int = 1,
    rates: BoxRates = _RATES,
) -> Topology:
    """`boxes` of eight MI250; `bandwidth` is that of one xGMI link. One NIC per module, beside both its dies.

    Parallel links between two dies carry one stream striped over them: one link of 2 or 4 times the bandwidth.
    Symmetry of a box: mirror it left to right, turn it upside down.
    """
    name = f"mi250:{boxes}"
    wiring = Wiring(name)
    places = {die: (1.7 * x, -1.5 * y) for y, row in enumerate(_ROWS) for x, die in enumerate(row)}
    for die in range(16):
        wiring.rank(places[die])
    for multiplicity, pairs in _LINKS.items():
        for one, other in pairs:
            wiring.cable(one, other, multiplicity * rates.bandwidth, rates.alpha)
    modules = tuple((die, die + 1) for die in range(0, 16, 2))
    return scale_out(
        name,
        wiring.topology([_LEFT_RIGHT, _UPSIDE_DOWN]),
        boxes,
        Nics(
            beside=modules,
            places=tuple((0.73 * i, 1.5) for i in range(8)),
            inside=rates.pcie,
            network=rates.network,
        ),
    )


MI250 = Family(
    name="mi250",
    build=mi250,
    parameters=(
        Parameter("boxes", count, "boxes on one network"),
        *box_parameters(
            "bytes/s of one xGMI link per direction; two dies share 1, 2 or 4 of them",
            "seconds per xGMI hop",
            "a die and a NIC",
        ),
    ),
    summary="AMD MI250 boxes: 16 dies on xGMI links of unequal number, a NIC per module",
    source="wiring and NICs (one of 200 Gb/s per module): RCCL's machine file topo_16p1h.xml; 50e9 bytes/s per xGMI "
    "link and direction (25 GT/s, 16 wide): AMD ROCm documentation; latency: none published, as NVLink in TACCL "
    "(NSDI'23) table 1",
    example="mi250",
)
