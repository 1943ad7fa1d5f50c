"""The paths that NCCL takes inside a host, and the cost of a byte on each of their links.

A graph file gives the order of a channel's GPUs and NICs, but not the links between them. NCCL chooses those by the
rules of its paths.cc, so predictions must use the same rules. From every GPU and NIC:

    best kind first (NVLink, one GPU in between, one PCI switch, several, host bridge, between sockets),
    then the higher rate, then fewer hops;
    GPUs whose path is worse than PCI switches exchange data through the processor's memory;
    a NIC behind another GPU is reached through that GPU if NVLink leads there (PXN, only for sending).

Costs other than one byte per byte: 6/5 on PCI links for transfers between GPUs through an Intel processor; 1/8 back on
the link of a pre-Ampere GPU that a NIC writes to; twice on a POWER processor's NVLinks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from functools import cached_property

from syntony.synth.nccl.machine.machine import LOCAL_RATE, Machine, MachineError, MachineLink, MachineNode


class PathKind(IntEnum):
    """Kinds of paths, better ones first; the names are those of graph files."""

    LOC = 0
    NVL = 1
    NVB = 2
    C2C = 3
    PIX = 4
    PXB = 5
    P2C = 6
    PXN = 7
    PHB = 8
    SYS = 9


_LINK_KINDS = {
    "NVL": PathKind.NVL,
    "C2C": PathKind.C2C,
    "PCI": PathKind.PIX,
    "SYS": PathKind.SYS,
    "NET": PathKind.LOC,
}


@dataclass(frozen=True)
class Path:
    """From one node to another; `rate` (GB/s) is that of its slowest link."""

    kind: PathKind
    rate: Fraction
    links: tuple[MachineLink, ...]

    def then(self, rest: Path) -> Path:
        """This path, and then `rest`."""
        kind = max(self.kind, rest.kind)
        if kind == PathKind.PHB and min(self.kind, rest.kind) == PathKind.C2C:
            kind = PathKind.P2C
        return Path(kind, min(self.rate, rest.rate), self.links + rest.links)


Costs = dict[int, Fraction]
"""Link id -> bytes on it per byte of a channel."""


class Paths:
    """The paths between all GPUs and network devices of a machine. Raises MachineError if one is missing."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        gpus, nets = [gpu.node for gpu in machine.gpus], [net.node for net in machine.nets]
        self._to = {node: _paths_to(node, machine) for node in (*machine.kinds("cpu"), *gpus, *nets)}
        self._divert_far_gpus(gpus)
        self._relayed_sends()
        self._divert_indirect_nets()
        for one in gpus:
            for other in gpus:
                if one is not other:
                    self.between(one, other)

    def reaches(self, src: MachineNode, dst: MachineNode) -> bool:
        """Whether there is a path."""
        return src in self._to[dst]

    def between(self, src: MachineNode, dst: MachineNode) -> Path:
        """The path that NCCL takes."""
        found = self._to[dst].get(src)
        if found is None:
            raise MachineError(f"{self._machine.name}: there is no path from {src.name} to {dst.name}")
        return found

    def costs(self, src: MachineNode, dst: MachineNode) -> Costs:
        """The cost of one byte from `src` to `dst` on each link."""
        path = self.between(src, dst)
        between_gpus = path.kind == PathKind.PHB and src.kind == "gpu"
        overhead = Fraction(6, 5) if between_gpus and any(link.dst.intel for link in path.links) else Fraction(1)
        costs: Costs = {}
        for link in path.links:
            cost = overhead if link.kind == "PCI" else Fraction(1)
            costs[link.id] = costs.get(link.id, Fraction(0)) + cost
            back = Fraction(0)
            if link.dst.gpu >= 0 and src.kind != "gpu" and self._machine.gpus[link.dst.gpu].capability < 80:
                back += cost / 8
            if link.dst.power and link.kind == "NVL":
                back += cost
            if back:
                reverse = next(one for one in link.dst.links if one.dst is link.src and one.kind == link.kind)
                costs[reverse.id] = costs.get(reverse.id, Fraction(0)) + back
        return costs

    @cached_property
    def local_gpus(self) -> tuple[int, ...]:
        """Per network device its nearest GPU, as NCCL assigns them: devices of a GPU take turns."""
        return tuple(self._local_gpu(net) for net in range(len(self._machine.nets)))

    def _local_gpu(self, net: int) -> int:
        machine = self._machine
        near = _nearest(self._found(machine.nets[net].node, gpu.node) for gpu in machine.gpus)
        for turn in range(64):
            for gpu in near:
                if self._net_of(gpu, turn) == net:
                    return gpu
        return near[0] if near else -1

    def _found(self, src: MachineNode, dst: MachineNode) -> Path | None:
        return self._to[dst].get(src)

    def _net_of(self, gpu: int, turn: int) -> int:
        """The network device that a GPU uses in its `turn`-th channel (ncclTopoGetLocalNet)."""
        machine = self._machine
        node = machine.gpus[gpu].node
        nets = _nearest(self._found(node, net.node) for net in machine.nets)
        first = _nearest(self._found(machine.nets[nets[0]].node, other.node) for other in machine.gpus)
        place = machine.gpus[gpu].dev % max(len(first), 1)
        if len(nets) & (len(nets) - 1) == 0:
            place = _mirrored(place, len(nets))
        per_gpu = -(-len(nets) // max(len(first), 1))
        return nets[(place + turn % per_gpu) % len(nets)]

    def _divert_far_gpus(self, gpus: list[MachineNode]) -> None:
        """GPUs too far apart for direct access exchange data through the memory of the receiver's processor."""
        machine = self._machine
        amd_pair = len(gpus) <= 2 and not any(cpu.intel or cpu.power for cpu in machine.kinds("cpu"))
        reach = PathKind.SYS if amd_pair else PathKind.PXB
        cpus = list(machine.kinds("cpu"))
        for dst in gpus:
            for src in gpus:
                path = self._to[dst].get(src)
                if src is dst or path is None or path.kind <= reach:
                    continue
                near = _nearest(self._to[cpu].get(dst) for cpu in cpus)
                if near:
                    cpu = min((cpus[index] for index in near), key=lambda cpu: len(self._to[cpu][dst].links))
                    onward = self._to[dst].get(cpu)
                    if onward is not None and src in self._to[cpu]:
                        self._to[dst][src] = self._to[cpu][src].then(onward)

    def _divert_indirect_nets(self) -> None:
        """If a NIC cannot access a GPU's memory, data passes through the memory of the GPU's processor."""
        cpus = list(self._machine.kinds("cpu"))
        for net in self._machine.nets:
            for gpu in self._machine.gpus:
                path = self._to[net.node].get(gpu.node)
                near = _nearest(self._to[cpu].get(gpu.node) for cpu in cpus)
                if (net.direct and gpu.direct) or path is None or path.kind >= PathKind.PHB or not near:
                    continue
                cpu = cpus[near[0]]
                self._to[net.node][gpu.node] = self._to[cpu][gpu.node].then(self._to[net.node][cpu])
                self._to[gpu.node][net.node] = self._to[cpu][net.node].then(self._to[gpu.node][cpu])

    def _relayed_sends(self) -> None:
        """A GPU sends through the GPU next to the NIC if that is faster or avoids the processor."""
        machine = self._machine
        if not machine.nets:
            return
        local = self.local_gpus
        for net, near in zip(machine.nets, local, strict=True):
            if near < 0:
                continue
            relay = machine.gpus[near]
            last = self._to[net.node].get(relay.node)
            if last is None or last.kind > PathKind.P2C or not (net.direct and relay.direct):
                continue
            linked = any(
                path is not None and path.kind == PathKind.NVL
                for path in (self._to[other.node].get(relay.node) for other in machine.gpus)
            )
            if relay.capability < 80 and not linked and len(machine.gpus) > 1:
                continue
            for gpu in machine.gpus:
                own, first = self._to[net.node].get(gpu.node), self._to[relay.node].get(gpu.node)
                if gpu is relay or first is None or first.kind > PathKind.NVL:
                    continue
                if own is None or last.rate > own.rate or own.kind > PathKind.PXN:
                    joined = first.then(last)
                    self._to[net.node][gpu.node] = Path(PathKind.PXN, joined.rate, joined.links)


def _paths_to(base: MachineNode, machine: Machine) -> dict[MachineNode, Path]:
    """Paths from everywhere to `base`, found backwards and breadth first as in NCCL's ncclTopoSetPaths."""
    paths = {base: Path(PathKind.LOC, LOCAL_RATE, ())}
    reverse = {(link.src, link.dst, link.kind): link for link in machine.links}
    frontier = [base]
    while frontier:
        following: list[MachineNode] = []
        for node in frontier:
            for link in node.links:
                other, path = link.dst, paths[node]
                through_gpu = node.gpu >= 0 and node is not base
                if through_gpu and (link.kind != "NVL" or other.gpu < 0 or len(path.links) > 1):
                    continue
                back = reverse.get((other, node, link.kind))
                if back is None:
                    continue
                kind = _kind_of_step(node, link, path)
                rate = min(path.rate, link.rate)
                known = paths.get(other)
                if (
                    known is None
                    or kind < known.kind
                    or (kind == known.kind and known.rate < rate)
                    or (kind == known.kind and known.rate == rate and len(known.links) > len(path.links) + 1)
                ):
                    paths[other] = Path(kind, rate, (back, *path.links))
                    if other not in following:
                        following.append(other)
        frontier = following
    return paths


def _kind_of_step(node: MachineNode, link: MachineLink, path: Path) -> PathKind:
    kind = _LINK_KINDS[link.kind]
    if node.kind == "pci" and link.dst.kind == "pci":
        kind = PathKind.PXB
    if link.kind == "PCI" and "cpu" in (node.kind, link.dst.kind):
        kind = PathKind.PHB
    if node.gpu >= 0 and path.kind == PathKind.NVL and kind == PathKind.NVL and len(path.links) == 1:
        kind = PathKind.NVB
    return max(path.kind, kind)


def _nearest(paths: Iterable[Path | None]) -> list[int]:
    """Positions of the fastest paths and, among them, the best kind."""
    known = [(position, path) for position, path in enumerate(paths) if path is not None]
    if not known:
        return []
    rate = max(path.rate for _, path in known)
    kind = min(path.kind for _, path in known if path.rate == rate)
    return [position for position, path in known if path.rate == rate and path.kind == kind]


def _mirrored(value: int, power: int) -> int:
    """The bits of `value` below `power`, a power of two, in reverse order."""
    width = power.bit_length() - 1
    return int(format(value % power, f"0{width}b")[::-1], 2) if width else 0
