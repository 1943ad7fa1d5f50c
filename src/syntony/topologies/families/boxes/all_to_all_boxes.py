r"""Boxes of eight accelerators, a direct link between every two: AMD MI300X, Intel Gaudi and Gaudi 2,
Huawei Ascend 910B.

           7 ─ 0 ─ 1
          / \ /│\ / \
         6 ─── X ─── 2       28 pairs, each of one xGMI link (MI300X), one (Gaudi) or three (Gaudi 2)
          \ / \│/ \ /        ports of 100 Gb/s Ethernet
           5 ─ 4 ─ 3

They differ in data only. With several boxes each accelerator has a NIC of its own. On Gaudi the NIC stands for the
three Ethernet ports that leave the box, so the cable to it has the bandwidth of the NIC and no latency.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count
from syntony.topologies.families.boxes.mi250 import XGMI_ALPHA
from syntony.topologies.families.boxes.rates import NETWORK_ALPHA, PCIE5_BANDWIDTH, PCIE_ALPHA, BoxRates, box_parameters
from syntony.topologies.families.boxes.scale_out import Nics, scale_out
from syntony.topologies.families.direct.full import full
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.topology import Topology

_ACCELERATORS = 8
_PORT = Fraction(125 * 10**8)  # bytes/s of 100 Gb/s Ethernet


def _family(name: str, rates: BoxRates, summary: str, source: str) -> Family:
    default = rates

    def build(boxes: int = 1, rates: BoxRates = default) -> Topology:
        """`boxes` of eight accelerators, all to all. Symmetry: permute those of a box, with their NICs."""
        return scale_out(
            f"{name}:{boxes}",
            full(_ACCELERATORS, rates.bandwidth, rates.alpha),
            boxes,
            Nics(
                beside=tuple((rank,) for rank in range(_ACCELERATORS)),
                places=tuple((0.75 * (i - 3.5), 2.6) for i in (4, 5, 6, 7, 0, 1, 2, 3)),
                inside=rates.pcie,
                network=rates.network,
            ),
        )

    return Family(
        name=name,
        build=build,
        parameters=(
            Parameter("boxes", count, "boxes on one network"),
            *box_parameters(
                "bytes/s between two accelerators of a box, per direction",
                "seconds between two accelerators of a box",
                "an accelerator and its NIC",
            ),
        ),
        summary=summary,
        source=source,
        example=name,
    )


MI300X = _family(
    "mi300x",
    BoxRates(Fraction(64 * 10**9), XGMI_ALPHA, PCIE5_BANDWIDTH, PCIE_ALPHA, Fraction(50 * 10**9), NETWORK_ALPHA),
    "AMD MI300X boxes: 8 GPUs all to all on xGMI, a NIC of 400 Gb/s each",
    "AMD Instinct MI300X platform data sheet: 128 GB/s of Infinity Fabric per pair of GPUs, both directions together; "
    "MI300 cluster reference architecture: 8 NICs of 400 Gb/s; latency: none published, as NVLink in TACCL (NSDI'23)",
)

GAUDI = _family(
    "gaudi",
    BoxRates(_PORT, NETWORK_ALPHA, 3 * _PORT, 0.0, 3 * _PORT, NETWORK_ALPHA),
    "Habana Gaudi boxes (HLS-1): 8 chips all to all on Ethernet, three ports each to the outside",
    "Habana Gaudi white paper: ten ports of 100 Gb/s Ethernet per chip, seven within the HLS-1 box; latency: none "
    "published, half of InfiniBand's in TACCL (NSDI'23) table 1",
)

GAUDI2 = _family(
    "gaudi2",
    BoxRates(3 * _PORT, NETWORK_ALPHA, 3 * _PORT, 0.0, 3 * _PORT, NETWORK_ALPHA),
    "Intel Gaudi 2 boxes: 8 chips all to all on Ethernet, three ports each to the outside",
    "Intel Gaudi documentation, network configuration: 24 ports of 100 Gb/s Ethernet per chip, three to each of the "
    "seven others and three to the outside; latency: none published, half of InfiniBand's in TACCL (NSDI'23) table 1",
)

ASCEND_910B = _family(
    "ascend-910b",
    BoxRates(Fraction(28 * 10**9), XGMI_ALPHA, PCIE5_BANDWIDTH, PCIE_ALPHA, Fraction(25 * 10**9), NETWORK_ALPHA),
    "Huawei Atlas 800T A2 boxes: 8 Ascend 910B all to all on HCCS, a port of 200 Gb/s each",
    "Huawei Atlas 800T A2 product description: 392 GB/s of HCCS per chip over seven links, both directions together, "
    "8 ports of 200 Gb/s RoCE (both quoted from memory); latency: none published, as NVLink in TACCL (NSDI'23)",
)
