"""The parts of a host, independent of the format that describes them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

PartKind = Literal["cpu", "bridge", "gpu", "nic", "nvswitch"]


@dataclass(frozen=True, eq=False)
class Part:
    """One part of a host; `parent` is the part above it, `bandwidth` that of the link to it (bytes/s).

    A NUMA node has no parent; its `bandwidth` is that of its links to other NUMA nodes.
    """

    kind: PartKind
    name: str
    host: int
    parent: Part | None = None
    bandwidth: Fraction = Fraction(0)


@dataclass(frozen=True)
class Bond:
    """One direction of a connection outside of the PCI tree: NVLink, xGMI, C2C."""

    fabric: str
    src: Part
    dst: Part

    def back(self) -> Bond:
        """The other direction."""
        return Bond(self.fabric, self.dst, self.src)


@dataclass(frozen=True)
class Wires:
    """The wires of a bond: `count` of them, with `bandwidth` bytes/s together."""

    count: int
    bandwidth: Fraction
