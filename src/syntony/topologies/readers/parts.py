"""The parts that machines are made of, whatever the format that describes them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

PartKind = Literal["cpu", "bridge", "gpu", "nic", "nvswitch"]


@dataclass(frozen=True, eq=False)
class Part:
    """One part of a machine; `parent` is what it hangs from, `bandwidth` that of the wire up to it (bytes/s).

    Of a NUMA node, which hangs from nothing, `bandwidth` is what passes from it to another one.
    """

    kind: PartKind
    name: str
    host: int
    parent: Part | None = None
    bandwidth: Fraction = Fraction(0)


@dataclass(frozen=True)
class Bond:
    """One direction between two parts that belongs to no tree: NVLink, xGMI, C2C."""

    fabric: str
    src: Part
    dst: Part

    def back(self) -> Bond:
        """The other direction."""
        return Bond(self.fabric, self.dst, self.src)


@dataclass(frozen=True)
class Wires:
    """What a bond is made of: so many wires, which carry one stream of `bandwidth` bytes/s together."""

    count: int
    bandwidth: Fraction
