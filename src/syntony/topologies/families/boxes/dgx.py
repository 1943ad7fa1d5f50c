"""DGX boxes with an NVSwitch: DGX A100 and DGX H100, any number of them on one InfiniBand crossbar.

The picture is in `boxes.py`. The InfiniBand network is a fat tree at full bisection bandwidth, modelled as one switch
that every NIC reaches at the rate of its port. Of the ten NICs of a box, the eight of the compute network are modelled.
"""

from __future__ import annotations

from syntony.base.quantity import count, flag
from syntony.topologies.families.boxes.boxes import Boxes
from syntony.topologies.families.boxes.rates import BOX_PARAMETERS, DGX_A100_RATES, DGX_H100_RATES, BoxRates
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.topology import Topology


def dgx_a100(
    boxes: int = 1,
    rates: BoxRates = DGX_A100_RATES,
) -> Topology:
    """`boxes` DGX A100: 8 GPUs with 12 NVLink 3 each, 8 NICs of 200 Gb/s. The switches only forward."""
    return Boxes(
        family="dgx-a100",
        boxes=boxes,
        gpus=8,
        nics=8,
        rates=rates,
    ).topology(f"dgx-a100:{boxes}")


def dgx_h100(
    boxes: int = 1,
    rates: BoxRates = DGX_H100_RATES,
    nvls: bool = True,
) -> Topology:
    """`boxes` DGX H100: 8 GPUs with 18 NVLink 4 each, 8 NICs of 400 Gb/s.

    `nvls`: the NVSwitches copy and add messages (NVLink SHARP); the network only forwards.
    """
    return Boxes(
        family="dgx-h100",
        boxes=boxes,
        gpus=8,
        nics=8,
        rates=rates,
        nvls=nvls,
    ).topology(f"dgx-h100:{boxes}")


_BOXES = Parameter("boxes", count, "boxes on one InfiniBand crossbar")

DGX_A100 = Family(
    name="dgx-a100",
    build=dgx_a100,
    parameters=(_BOXES, *BOX_PARAMETERS),
    summary="NVIDIA DGX A100 boxes, 8 GPUs and 8 NICs each, on InfiniBand",
    source="NVIDIA DGX A100 data sheet: 600 GB/s of NVLink per GPU in both directions together, HDR 200 Gb/s; "
    "PCIe 4.0 x16; latencies: TACCL (NSDI'23) table 1",
    example="dgx-a100:2",
)

DGX_H100 = Family(
    name="dgx-h100",
    build=dgx_h100,
    parameters=(_BOXES, *BOX_PARAMETERS, Parameter("nvls", flag, "whether the NVSwitches multicast and reduce")),
    summary="NVIDIA DGX H100 boxes, 8 GPUs and 8 NICs each, on InfiniBand",
    source="NVIDIA DGX H100 data sheet: 900 GB/s of NVLink per GPU in both directions together, NDR 400 Gb/s; "
    "PCIe 5.0 x16; latencies: TACCL (NSDI'23) table 1, measured on an older box",
    example="dgx-h100:2",
)
