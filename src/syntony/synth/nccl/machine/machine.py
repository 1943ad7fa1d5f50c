"""A host as NCCL sees it in its search for channels: GPUs, PCI switches, processors, NVSwitches and NICs.

The rates are NCCL's, in GB/s (1e9 bytes/s) as everywhere in its graph files: measured values, not those of data sheets
(src/graph/topo.h of NCCL 2.30). A speed written into a graph file must be of this scale, since NCCL's cost model
compares it with its own numbers for other algorithms. Machines come from NCCL's topology files (machine_file.py) and
from any Topology of ours (machine_of.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from syntony.base.command import UserError

NodeKind = Literal["gpu", "pci", "nvs", "cpu", "nic", "net"]
LinkKind = Literal["NVL", "C2C", "PCI", "SYS", "NET"]

LOCAL_RATE = Fraction(5000)
"""NCCL's rate (GB/s) of links that never limit anything, such as a processor's to a NIC that is not on PCI."""


class MachineError(UserError):
    """A machine that a graph file cannot describe; the message says why."""


@dataclass(eq=False)
class MachineNode:
    """A node; `links` leave it, in the order in which NCCL follows them.

    intel      a processor that turns PCI transfers between GPUs into small packets, which cost a fifth more
    power      a processor whose NVLinks count both ways
    gpu, net   position among the machine's GPUs, or its network devices; -1 for others
    """

    kind: NodeKind
    name: str
    intel: bool = False
    power: bool = False
    gpu: int = -1
    net: int = -1
    links: list[MachineLink] = field(default_factory=list)


@dataclass(eq=False)
class MachineLink:
    """One direction between two nodes; parallel wires are one link."""

    id: int
    kind: LinkKind
    src: MachineNode
    dst: MachineNode
    rate: Fraction


@dataclass(frozen=True)
class Gpu:
    """`dev` is its number on the host (NVML's), by which a graph file names it; `capability` is 80 for an A100."""

    node: MachineNode
    dev: int
    rank: int
    capability: int
    direct: bool = True
    """Whether NICs can access its memory (GPUDirect RDMA)."""


@dataclass(frozen=True)
class Net:
    """A network device; those with the same `port` (a pair of card and port) share its `rate` (GB/s)."""

    node: MachineNode
    dev: int
    port: tuple[str, int]
    rate: Fraction
    direct: bool = True
    collective: bool = False
    """Whether it reduces in the network (collnet)."""


class Machine:
    """One host. Readers add nodes and links; afterwards it is not changed."""

    def __init__(self, name: str, multicast: bool = False) -> None:
        self.name = name
        self.multicast = multicast
        """Whether its NVSwitches reduce and multicast (NVLS)."""
        self.nodes: list[MachineNode] = []
        self.links: list[MachineLink] = []
        self.gpus: list[Gpu] = []
        self.nets: list[Net] = []
        self.assumed: list[str] = []
        """Assumptions about what the description leaves out, in sentences."""

    def node(self, kind: NodeKind, name: str, *, intel: bool = False, power: bool = False) -> MachineNode:
        """Adds a node."""
        self.nodes.append(MachineNode(kind, name, intel, power))
        return self.nodes[-1]

    def add_gpu(self, node: MachineNode, dev: int, rank: int, capability: int, *, direct: bool = True) -> None:
        node.gpu = len(self.gpus)
        self.gpus.append(Gpu(node, dev, rank, capability, direct))

    def add_net(
        self, node: MachineNode, dev: int, port: tuple[str, int], rate: Fraction, *, direct: bool, collective: bool
    ) -> None:
        node.net = len(self.nets)
        self.nets.append(Net(node, dev, port, rate, direct, collective))

    def connect(self, kind: LinkKind, src: MachineNode, dst: MachineNode, rate: Fraction) -> None:
        """Adds `rate` from `src` to `dst`. Faster links come first, because NCCL follows links in this order."""
        link = next((link for link in src.links if link.dst is dst and link.kind == kind), None)
        if link is None:
            link = MachineLink(len(self.links), kind, src, dst, Fraction(0))
            self.links.append(link)
            src.links.append(link)
        link.rate += rate
        position = src.links.index(link)
        while position and src.links[position - 1].rate < link.rate:
            src.links[position - 1 : position + 1] = src.links[position], src.links[position - 1]
            position -= 1

    def join(self, kind: LinkKind, one: MachineNode, other: MachineNode, rate: Fraction) -> None:
        """`connect` in both directions."""
        self.connect(kind, one, other, rate)
        self.connect(kind, other, one, rate)

    def sort(self) -> None:
        """Moves the upward links of the PCI tree to the end, as NCCL does."""
        for node in self.nodes:
            if node.kind == "cpu":
                _sort_below(node, None)

    def kinds(self, kind: NodeKind) -> Iterator[MachineNode]:
        """Nodes of a kind."""
        return (node for node in self.nodes if node.kind == kind)

    @property
    def channel_rate(self) -> Fraction:
        """The most that one channel (one thread block) of the slowest GPU carries, GB/s.

        Half the highest speed that NCCL's search tries, because NCCL then doubles the channels (ncclTopoDupChannels).
        """
        capability = min(gpu.capability for gpu in self.gpus)
        return Fraction(45 if capability >= 100 else 30 if capability >= 90 else 20)


def _sort_below(node: MachineNode, above: MachineNode | None) -> None:
    if above is not None:
        upward = next(link for link in node.links if link.dst is above)
        node.links.remove(upward)
        node.links.append(upward)
    for link in list(node.links):
        if link.kind == "PCI" and link.dst is not above:
            _sort_below(link.dst, node)
