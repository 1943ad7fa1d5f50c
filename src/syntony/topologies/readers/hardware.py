"""Rates and latencies of known hardware, as data: PCI Express, NVLink, xGMI, and links between processors.

Rates are bytes/s per direction. For PCI Express, NVLink and xGMI they are the vendors' numbers, as in the families. For
links between processors, no vendor says what they carry for GPUs; the rates are NCCL's constants (src/graph/topo.h of
NCCL 2.30), which its authors measured.

No description of a host contains latencies. Those here are from TACCL (NSDI'23, table 1) for the link of a GPU or NIC,
divided among links as in the families, and orders of magnitude for the rest. `topo probe` measures them.
"""

from __future__ import annotations

import re
from fractions import Fraction

GIGA = 10**9

# PCI Express ------------------------------------------------------------------------------------------------------

# Billions of transfers per second and lane -> bytes/s of one lane: the published rate of 16 lanes in one
# direction (4, 8, 15.75, 31.5, 63 and 121 GB/s, after the encoding 8b/10b, 128b/130b, and 242 in 256 bytes), over 16.
_PCIE_LANE = {
    Fraction("2.5"): Fraction(4 * GIGA, 16),
    Fraction(5): Fraction(8 * GIGA, 16),
    Fraction(8): Fraction("15.75") * GIGA / 16,
    Fraction(16): Fraction("31.5") * GIGA / 16,
    Fraction(32): Fraction(63 * GIGA, 16),
    Fraction(64): Fraction(121 * GIGA, 16),
}
_PCIE_SPEED = re.compile(r"([0-9]{1,2}(?:\.[0-9])?) GT/s(?: PCIe)?")

PCIE_LANES = 16
"""Assumed if the width of a link is not known."""


def pcie(transfers: Fraction, lanes: int) -> Fraction:
    """Bytes/s of a PCI Express link of `lanes` lanes at `transfers` billion per second and lane.

    Raises KeyError for a speed that PCI Express does not have.
    """
    return _PCIE_LANE[transfers] * lanes


def pcie_rounded(bandwidth: Fraction) -> Fraction:
    """The PCI Express bandwidth that was rounded in another way: 15.753846e9 is 16 lanes at 8 GT/s.

    A bandwidth that differs from every PCI Express link by more than a thousandth is returned unchanged.
    """
    links = (lane * lanes for lane in _PCIE_LANE.values() for lanes in (1, 2, 4, 8, 12, 16, 32))
    return next((link for link in links if abs(link - bandwidth) * 1000 <= bandwidth), bandwidth)


PCIE_UNKNOWN = pcie(Fraction(8), PCIE_LANES)
"""Assumed if the speed of a link is not known, as on virtual machines: generation 3, as in NCCL."""


def pcie_speed(text: str) -> Fraction | None:
    """Billions of transfers per second, from Linux's `16.0 GT/s PCIe` or `8 GT/s`; None if the speed is unknown.

    Raises ValueError that says what would be right.
    """
    if text.strip().lower() in ("", "unknown", "unknown speed"):
        return None
    found = _PCIE_SPEED.fullmatch(text.strip())
    if found is None or Fraction(found.group(1)) not in _PCIE_LANE:
        known = ", ".join(f"{float(speed):g}" for speed in _PCIE_LANE)
        raise ValueError(f"it must be a speed of PCI Express, such as 16.0 GT/s PCIe (known are {known} GT/s)")
    return Fraction(found.group(1))


# NVLink and xGMI --------------------------------------------------------------------------------------------------

# Least compute capability -> bytes/s of one NVLink per direction: P100, V100, A100, GA102 (white papers), H100 and B200
# (data sheets: 900 and 1800 GB/s over 18 links in both directions together).
_NVLINK = (
    (60, Fraction(20 * GIGA)),
    (70, Fraction(25 * GIGA)),
    (80, Fraction(25 * GIGA)),
    (86, Fraction("14.0625") * GIGA),
    (87, Fraction(25 * GIGA)),
    (90, Fraction(25 * GIGA)),
    (100, Fraction(50 * GIGA)),
)

NVLINK_SHARP = 90
"""From this compute capability on, NVSwitches multicast and add (NVLink SHARP)."""


def nvlink(compute_capability: int) -> Fraction:
    """Bytes/s of one NVLink per direction; `compute_capability` is 90 for an H100."""
    return next((rate for least, rate in reversed(_NVLINK) if compute_capability >= least), _NVLINK[0][1])


def most_nvlinks(compute_capability: int) -> int:
    """How many NVLinks a GPU of this kind has at most: P100 and GA102 4, V100 6, A100 12, H100 and B200 18."""
    return next((links for least, links in ((90, 18), (86, 4), (80, 12), (70, 6)) if compute_capability >= least), 4)


# NVIDIA's models by compute capability: a word of the marketing name, and the first digits of the PCI device number.
_NVIDIA = (
    (60, r"P100", r"15f"),
    (70, r"V100", r"1d[b-f]"),
    (80, r"A100|A800|A30\b", r"20[b-f]"),
    (86, r"A6000|A5500|A5000|A4500|A40\b|A10\b|3090", r"22[0-3]"),
    (90, r"H100|H200|H800|H20\b|GH200", r"23[0-4]"),
    (100, r"B100|B200|B300|GB200|GB300", r"29[0-4]|31[8-c]"),
)


def nvidia_model(name: str) -> int | None:
    """The compute capability of a marketing name such as `NVIDIA H100 80GB HBM3`; None if it is not in the table."""
    return next((capability for capability, word, _ in _NVIDIA if re.search(rf"\b(?:{word})", name)), None)


def nvidia_device(number: str) -> int | None:
    """The compute capability of a PCI device number, four hexadecimal digits; None if it is not in the table."""
    return next((capability for capability, _, digits in _NVIDIA if re.match(digits, number.lower())), None)


def pcie_of_nvidia(compute_capability: int) -> Fraction:
    """Bytes/s of the PCI Express link of such a GPU: generation 3, 4 from A100 on, 5 from H100 on."""
    speed = next((speed for least, speed in ((90, 32), (80, 16)) if compute_capability >= least), 8)
    return pcie(Fraction(speed), PCIE_LANES)


# xGMI, 16 lanes: 23, 25 and 32 billion transfers per second and lane (AMD's data sheets: 92 GB/s of MI50 and MI100, 100
# of MI250X, 128 of MI300X, both directions together). Architectures that are not listed get the newest rate.
_XGMI = (
    (r"(gfx)?90[0-9]", Fraction(46 * GIGA)),
    (r"(gfx)?(90a|910|912)", Fraction(50 * GIGA)),
)
_XGMI_NEWEST = Fraction(64 * GIGA)


def xgmi(architecture: str) -> Fraction:
    """Bytes/s of one xGMI link per direction; `architecture` as RCCL writes it: `906`, `910` or `gfx942`."""
    return next((rate for name, rate in _XGMI if re.match(rf"{name}\b", architecture)), _XGMI_NEWEST)


# Vendors of accelerators on PCI, as four hexadecimal digits: their display (03) and processing (12) devices are ranks.
ACCELERATOR_VENDORS = {"10de": "NVIDIA", "1002": "AMD", "1da3": "Habana"}


# Processors -------------------------------------------------------------------------------------------------------

_INTERCONNECT_UNTOLD = Fraction(10 * GIGA)


def processor_interconnect(architecture: str, vendor: str, family: int, model: int) -> Fraction:
    """Bytes/s between two NUMA nodes for GPUs and NICs; names as in NCCL's topology files."""
    if architecture == "ppc64":
        return Fraction(32 * GIGA)
    if architecture == "arm64":
        return Fraction(6 * GIGA)
    if vendor == "AuthenticAMD":
        return Fraction(16 * GIGA)
    if vendor == "GenuineIntel" and family == 6:
        steps = ((0xCF, 40), (0x8F, 22), (0x55, 10))  # Emerald Rapids, Sapphire Rapids, Skylake; 6 before
        return Fraction(next((rate for least, rate in steps if model >= least), 6) * GIGA)
    if vendor.strip() in ("CentaurHauls", "Shanghai"):
        return Fraction((9 if (family, model) == (7, 0x5B) else 6) * GIGA)
    return _INTERCONNECT_UNTOLD


# Latencies, seconds -----------------------------------------------------------------------------------------------

ENDPOINT_ALPHA = 0.35e-6
"""The link of a GPU or NIC: PCI Express, or NVLink to an NVSwitch or a processor."""
PEER_ALPHA = 0.7e-6
"""A direct link between two GPUs."""
BRIDGE_ALPHA = 0.15e-6
"""Between PCI Express switches, and up to the processor: the cut-through latency of such a switch."""
MEMORY_ALPHA = 0.1e-6
"""A processor's own memory; another's is further by the ratio of their NUMA distances, where 10 is one's own."""
