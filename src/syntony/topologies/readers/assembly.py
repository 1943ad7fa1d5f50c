r"""A machine put together from its parts, as a topology.

All readers of this folder find the same kinds of parts, whatever their format. Here they become nodes and links:

           cpu0 ───────────── cpu1          NUMA nodes: switches, all joined to all in one host
            │                  │
        pci 17:00.0        pci a1:00.0      PCI Express bridges: switches
        │   │    │         │    │    │
      mlx5_0 gpu0 gpu1   gpu2 gpu3 mlx5_1   GPUs are the ranks; NICs are leaves, as the network is not described
               \    \     /   /
                 nvswitch                   or NVLinks and xGMI links from GPU to GPU

If there is no GPU, the NUMA nodes are the ranks. A bridge with neither GPU nor NIC below is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from fractions import Fraction
from itertools import combinations

from syntony.base.wording import counted
from syntony.topologies.readers.describe import describe_bonds, describe_parts
from syntony.topologies.readers.hardware import BRIDGE_ALPHA, ENDPOINT_ALPHA, MEMORY_ALPHA, PCIE_UNKNOWN, PEER_ALPHA
from syntony.topologies.readers.parts import Bond, Part, PartKind, Wires
from syntony.topologies.topology import Link, Node, NodeKind, Topology, TopologyError

MOST_CPUS = 256  # NUMA nodes of one host; they are joined all to all
_NEIGHBOUR = 20  # NUMA distance of another node, if it is not known


class Assembly:
    """Collects the parts of one or several hosts, then wires them. error messages begin with `where`."""

    def __init__(self, name: str, where: str) -> None:
        self._name = name
        self._where = where
        self._parts: list[Part] = []
        self._gpus: list[tuple[int, Part]] = []
        self._bonds: dict[Bond, Wires] = {}
        self._distances: dict[tuple[Part, Part], int] = {}
        self._nvswitch: Part | None = None
        self._shares = False
        self._notes: list[str] = []
        self._unknown: set[Part] = set()
        self._names: Counter[str] = Counter()
        self._cpus_of: Counter[int] = Counter()
        self.sockets: int | None = None

    def cpu(self, name: str, interconnect: Fraction, host: int = 0) -> Part:
        """A NUMA node; `interconnect` is the bandwidth from it to another one (bytes/s)."""
        self._cpus_of[host] += 1
        if self._cpus_of[host] > MOST_CPUS:
            raise TopologyError(f"{self._where}: more than {MOST_CPUS} NUMA nodes in one host are not supported")
        return self._add("cpu", name, host, None, interconnect)

    def bridge(self, name: str, parent: Part, bandwidth: Fraction | None) -> Part:
        """A PCI bridge or switch. Here and below, an unknown bandwidth is None; the description mentions it."""
        return self._add("bridge", name, parent.host, parent, bandwidth)

    def nic(self, name: str, parent: Part, bandwidth: Fraction | None) -> Part:
        return self._add("nic", name, parent.host, parent, bandwidth)

    def card(
        self, name: str, parent: Part, bandwidth: Fraction | None, ports: Sequence[tuple[str, Fraction | None]]
    ) -> None:
        """A network card with ports, each a name and a speed: one NIC, or several that share the link of the card."""
        if len(ports) == 1:
            port, speed = ports[0]
            self.nic(port, parent, min((one for one in (bandwidth, speed) if one is not None), default=None))
        elif ports:
            shared = self.bridge(name, parent, bandwidth)
            for port, speed in ports:
                self.nic(port, shared, bandwidth if speed is None else speed)

    def gpu(self, name: str, parent: Part, bandwidth: Fraction | None, order: int | None = None) -> Part:
        """A GPU. Ranks are numbered by `order`; those whose order is None, as they were added."""
        part = self._add("gpu", name, parent.host, parent, bandwidth)
        self._gpus.append((len(self._gpus) if order is None else order, part))
        return part

    def nvswitch(self, shares: bool) -> Part:
        """The NVSwitches, which are one node: GPUs spread their links evenly. `shares`: they multicast and add."""
        if self._nvswitch is None:
            self._nvswitch = self._add("nvswitch", "nvswitch", 0, None, Fraction(0))
            self._shares = shares
        self._shares = self._shares and shares
        return self._nvswitch

    def join(self, fabric: str, src: Part, dst: Part, count: int, bandwidth: Fraction) -> None:
        """Adds `count` wires of `bandwidth` bytes/s each from `src` to `dst`; repeated calls add up."""
        if count > 0:
            bond = Bond(fabric, src, dst)
            before = self._bonds.get(bond, Wires(0, Fraction(0)))
            self._bonds[bond] = Wires(before.count + count, before.bandwidth + count * bandwidth)

    def distance(self, src: Part, dst: Part, distance: int) -> None:
        """The NUMA distance from one NUMA node to another, as the firmware gives it: 10 is a node's own memory."""
        self._distances[src, dst] = distance

    def note(self, sentence: str) -> None:
        """Adds a remark to the description of the topology."""
        self._notes.append(sentence)

    def topology(self) -> Topology:
        """The finished topology; raises TopologyError if there is no part that could be a rank."""
        gpus = [part for _, part in sorted(self._gpus, key=lambda entry: entry[0])]
        cpus = [part for part in self._parts if part.kind == "cpu"]
        ranks = gpus or cpus
        if not ranks:
            raise TopologyError(f"{self._where}: it has neither GPU nor NUMA node, so there is no rank")
        kept = self._kept()
        order = [*ranks, *(part for part in kept if part.kind != "nic"), *kept]
        ids = {part: number for number, part in enumerate(dict.fromkeys(order))}
        places = _places(kept, self._children())
        nodes = tuple(
            Node(number, _node_kind(part, ranks), part.name, self._sharing(part), self._sharing(part), places[part])
            for part, number in ids.items()
        )
        wires = [*self._tree(kept), *self._between_cpus(cpus), *self._bonded(ids)]
        links = tuple(
            Link(number, ids[src], ids[dst], alpha, bandwidth)
            for number, (src, dst, alpha, bandwidth) in enumerate(wires)
        )
        return Topology(self._name, nodes, links, about=self._about(kept))

    def _add(self, kind: PartKind, name: str, host: int, parent: Part | None, bandwidth: Fraction | None) -> Part:
        if not (name and name.isprintable()):
            raise TopologyError(f"{self._where}: a part has the name {name!r}; a name is printable and not empty")
        self._names[name] += 1
        distinct = name if self._names[name] == 1 else f"{name}#{self._names[name]}"
        part = Part(kind, distinct, host, parent, PCIE_UNKNOWN if bandwidth is None else bandwidth)
        self._parts.append(part)
        if bandwidth is None:
            self._unknown.add(part)
        return part

    def _sharing(self, part: Part) -> bool:
        return part is self._nvswitch and self._shares

    def _kept(self) -> list[Part]:
        """The parts, without bridges that have nothing below."""
        leading: set[Part] = set()
        for part in self._parts:
            above: Part | None = part if part.kind in ("gpu", "nic") else None
            while above is not None and above not in leading:
                leading.add(above)
                above = above.parent
        return [part for part in self._parts if part.kind != "bridge" or part in leading]

    def _children(self) -> dict[Part, list[Part]]:
        children: dict[Part, list[Part]] = {}
        for part in self._parts:
            if part.parent is not None:
                children.setdefault(part.parent, []).append(part)
        return children

    def _about(self, kept: list[Part]) -> str:
        unknown = sum(part in self._unknown for part in kept)
        notes = [f"{counted(unknown, 'PCI link')} of unknown speed taken as generation 3 x16"] if unknown else []
        return "; ".join([describe_parts(kept, self.sockets), *describe_bonds(kept, self._bonds), *self._notes, *notes])

    def _tree(self, kept: Iterable[Part]) -> Iterable[_Wire]:
        for part in kept:
            if part.parent is not None:
                alpha = BRIDGE_ALPHA if part.kind == "bridge" else ENDPOINT_ALPHA
                yield part, part.parent, alpha, part.bandwidth
                yield part.parent, part, alpha, part.bandwidth

    def _between_cpus(self, cpus: list[Part]) -> Iterable[_Wire]:
        hosts: dict[int, list[Part]] = {}
        for cpu in cpus:
            hosts.setdefault(cpu.host, []).append(cpu)
        for together in hosts.values():
            for one, other in combinations(together, 2):
                for src, dst in ((one, other), (other, one)):
                    alpha = MEMORY_ALPHA * self._distances.get((src, dst), _NEIGHBOUR) / 10
                    yield src, dst, alpha, src.bandwidth

    def _bonded(self, kept: Container[Part]) -> Iterable[_Wire]:
        for bond, wires in self._bonds.items():
            if bond.src in kept and bond.dst in kept:
                alpha = PEER_ALPHA if bond.src.kind == bond.dst.kind == "gpu" else ENDPOINT_ALPHA
                yield bond.src, bond.dst, alpha, wires.bandwidth


_Wire = tuple[Part, Part, float, Fraction]


def _node_kind(part: Part, ranks: list[Part]) -> NodeKind:
    if part.kind == ranks[0].kind:
        return "rank"
    return "nic" if part.kind == "nic" else "switch"


_APART = 1.3  # between leaves in a drawing; the names of bridges need as much


def _places(parts: list[Part], children: dict[Part, list[Part]]) -> dict[Part, tuple[float, float]]:
    """Leaves side by side at the bottom, in the order of the tree; other parts above the middle of their children."""
    places: dict[Part, tuple[float, float]] = {}
    shown = set(parts)
    width = 0

    def settle(part: Part) -> tuple[float, float]:
        nonlocal width
        below = [settle(child) for child in children.get(part, []) if child in shown]
        if below:
            x, y = (below[0][0] + below[-1][0]) / 2, max(y for _, y in below) + 1.2
        else:
            x, y = _APART * width, 0.0 if part.kind in ("gpu", "nic") else 1.2
            width += 1
        places[part] = (round(x, 3), round(y, 3))
        return places[part]

    for part in parts:
        if part.kind == "cpu":
            settle(part)
    top = max((y for part, (_, y) in places.items() if part.kind == "cpu"), default=0.0)
    for part in parts:
        if part.kind == "cpu":
            places[part] = (places[part][0], top)
        elif part.kind == "nvswitch":
            places[part] = (round(_APART * (width - 1) / 2, 3), -1.6)
    return places
