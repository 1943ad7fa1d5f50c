"""DGX boxes with an NVSwitch: DGX A100 and DGX H100, any number of them on one InfiniBand crossbar.

The picture is in `boxes.py`. The InfiniBand network is a fat tree at full bisection bandwidth, modelled as one switch
that every NIC reaches at the rate of its port. Of the ten NICs of a box, the eight of the compute network are modelled.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count, flag, rate, seconds
from syntony.topologies.families.boxes.boxes import NETWORK_ALPHA, NVLINK_ALPHA, PCIE_ALPHA, Boxes, Wire
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.topology import Topology

PCIE4_BANDWIDTH = Fraction(315 * 10**8)
PCIE5_BANDWIDTH = Fraction(63 * 10**9)


def dgx_a100(
    boxes: int = 1,
    bandwidth: Fraction = Fraction(300 * 10**9),
    alpha: float = NVLINK_ALPHA,
    pcie_bandwidth: Fraction = PCIE4_BANDWIDTH,
    pcie_alpha: float = PCIE_ALPHA,
    nic_bandwidth: Fraction = Fraction(25 * 10**9),
    nic_alpha: float = NETWORK_ALPHA,
) -> Topology:
    """`boxes` DGX A100: 8 GPUs with 12 NVLink 3 each, 8 NICs of 200 Gb/s. The switches only forward."""
    return Boxes(
        family="dgx-a100",
        boxes=boxes,
        gpus=8,
        nics=8,
        nvlink=Wire(bandwidth, alpha),
        pcie=Wire(pcie_bandwidth, pcie_alpha),
        network=Wire(nic_bandwidth, nic_alpha),
    ).topology(f"dgx-a100:{boxes}")


def dgx_h100(
    boxes: int = 1,
    bandwidth: Fraction = Fraction(450 * 10**9),
    alpha: float = NVLINK_ALPHA,
    pcie_bandwidth: Fraction = PCIE5_BANDWIDTH,
    pcie_alpha: float = PCIE_ALPHA,
    nic_bandwidth: Fraction = Fraction(50 * 10**9),
    nic_alpha: float = NETWORK_ALPHA,
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
        nvlink=Wire(bandwidth, alpha),
        pcie=Wire(pcie_bandwidth, pcie_alpha),
        network=Wire(nic_bandwidth, nic_alpha),
        nvlink_multicast=nvls,
        nvlink_reduces=nvls,
    ).topology(f"dgx-h100:{boxes}")


BOX_PARAMETERS = (
    Parameter("bandwidth", rate, "bytes/s of a GPU's NVLinks together, per direction"),
    Parameter("alpha", seconds, "seconds from a GPU to the NVSwitch"),
    Parameter("pcie_bandwidth", rate, "bytes/s between a GPU and a NIC, per direction"),
    Parameter("pcie_alpha", seconds, "seconds between a GPU and a NIC"),
    Parameter("nic_bandwidth", rate, "bytes/s of a NIC's port, per direction"),
    Parameter("nic_alpha", seconds, "seconds between a NIC and the network switch"),
)

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
