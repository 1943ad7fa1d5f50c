"""The rates of a box of GPUs: of the links inside, of the cables to the NICs, and of the NICs' ports.

Every family of boxes takes these six under the same names; what differs is the defaults and what a link is called.
Latencies are those of TACCL (NSDI'23), table 1, cut into the links of a path: GPU to GPU over NVLink 0.7e-6 s is two
links; GPU to GPU over InfiniBand 1.7e-6 s is four (PCIe, network, network, PCIe).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from syntony.base.quantity import rate, seconds
from syntony.topologies.families.family import Parameter

NVLINK_ALPHA = 0.35e-6
PCIE_ALPHA = 0.35e-6
NETWORK_ALPHA = 0.5e-6

PCIE4_BANDWIDTH = Fraction(315 * 10**8)
PCIE5_BANDWIDTH = Fraction(63 * 10**9)


@dataclass(frozen=True)
class Wire:
    """A kind of cable: bytes/s per direction, and seconds of latency."""

    bandwidth: Fraction
    alpha: float


@dataclass(frozen=True)
class BoxRates:
    """Bytes/s per direction and seconds: of a link between GPUs, between GPU and NIC, of a NIC's port."""

    bandwidth: Fraction
    alpha: float
    pcie_bandwidth: Fraction
    pcie_alpha: float
    nic_bandwidth: Fraction
    nic_alpha: float

    @property
    def pcie(self) -> Wire:
        """Between a GPU and a NIC."""
        return Wire(self.pcie_bandwidth, self.pcie_alpha)

    @property
    def network(self) -> Wire:
        """Between a NIC and the network."""
        return Wire(self.nic_bandwidth, self.nic_alpha)


def nvidia_rates(link: Fraction, pcie: Fraction, port: Fraction) -> BoxRates:
    """NVLinks, PCIe and InfiniBand of these bytes/s."""
    return BoxRates(link, NVLINK_ALPHA, pcie, PCIE_ALPHA, port, NETWORK_ALPHA)


DGX_A100_RATES = nvidia_rates(Fraction(300 * 10**9), PCIE4_BANDWIDTH, Fraction(25 * 10**9))
DGX_H100_RATES = nvidia_rates(Fraction(450 * 10**9), PCIE5_BANDWIDTH, Fraction(50 * 10**9))


def box_parameters(
    bandwidth: str,
    alpha: str,
    gpu_nic: str,
    *,
    nic_bandwidth: str = "bytes/s of a NIC's port, per direction",
    nic_alpha: str = "seconds between a NIC and the network switch",
) -> tuple[Parameter, ...]:
    """The six as parameters of a family whose builder takes `rates`, with their meanings; `gpu_nic` names two ends."""
    meanings = (
        ("bandwidth", bandwidth),
        ("alpha", alpha),
        ("pcie_bandwidth", f"bytes/s between {gpu_nic}, per direction"),
        ("pcie_alpha", f"seconds between {gpu_nic}"),
        ("nic_bandwidth", nic_bandwidth),
        ("nic_alpha", nic_alpha),
    )
    return tuple(
        Parameter(name, rate if name.endswith("bandwidth") else seconds, meaning, within="rates")
        for name, meaning in meanings
    )


BOX_PARAMETERS = box_parameters(
    "bytes/s of a GPU's NVLinks together, per direction", "seconds from a GPU to the NVSwitch", "a GPU and a NIC"
)
