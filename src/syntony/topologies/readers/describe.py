"""Describes a host in a line: `8 GPUs, 4 NICs of 25 GB/s, 2 NUMA nodes; NVLink 2 x 25 GB/s between 8 pairs of GPUs`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from syntony.base.wording import counted, rate
from syntony.topologies.readers.parts import Bond, Part, Wires


def describe_parts(parts: Sequence[Part], sockets: int | None) -> str:
    """How many of each kind there are."""
    kinds = Counter(part.kind for part in parts)
    hosts = len({part.host for part in parts})
    has = [
        counted(hosts, "host") if hosts > 1 else "",
        counted(kinds["gpu"], "GPU") if kinds["gpu"] else "no GPU",
        _nics(Counter(part.bandwidth for part in parts if part.kind == "nic")),
        counted(kinds["cpu"], "NUMA node"),
        counted(sockets, "socket") if sockets else "",
    ]
    return ", ".join(text for text in has if text)


def _nics(speeds: Counter[Fraction]) -> str:
    if not speeds:
        return "no NIC"
    if len(speeds) == 1:
        return f"{counted(speeds.total(), 'NIC')} of {rate(next(iter(speeds)))}"
    apart = ", ".join(f"{count} of {rate(speed)}" for speed, count in sorted(speeds.items(), reverse=True))
    return f"{counted(speeds.total(), 'NIC')} ({apart})"


def describe_bonds(parts: Sequence[Part], bonds: Mapping[Bond, Wires]) -> Iterator[str]:
    """A sentence per fabric: the number of wires, their rate, and which parts they connect."""
    counts: dict[str, Counter[tuple[int, Fraction, str]]] = {}
    done: set[Bond] = set()
    for bond, wires in bonds.items():
        where = _where(bond, both_ways=bond.back() in bonds)
        if where and bond.back() not in done:
            counts.setdefault(bond.fabric, Counter())[wires.count, wires.bandwidth / wires.count, where] += 1
        done.add(bond)
    for fabric, alike in counts.items():
        connections = [
            f"{count} x {rate(bandwidth)} {where.format(counted(number, 'pair' if 'between' in where else 'GPU'))}"
            for (count, bandwidth, where), number in sorted(alike.items(), reverse=True)
        ]
        yield f"{fabric} {', '.join(connections)}"
    if not counts and sum(part.kind == "gpu" for part in parts) > 1:
        yield "GPUs reach each other over PCI Express"


def _where(bond: Bond, both_ways: bool) -> str:
    """What a bond connects, with a place for a count; empty for a bond that is left out, such as one from a switch."""
    if bond.src.kind == bond.dst.kind == "gpu":
        return "between {} of GPUs" if both_ways else "one way between {} of GPUs"
    ends = {"nvswitch": "NVSwitch", "cpu": "processor"}
    return f"from {{}} to the {ends[bond.dst.kind]}" if bond.dst.kind in ends else ""
