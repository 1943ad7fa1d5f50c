r"""What the lab builds from a topology: machines, wires, addresses and rates. Pure: computes but changes nothing.

        rail:boxes=2,gpus=1,rails=2

        h0  198.18.0.1 ── w0 ──── s0 ──── w2 ── 198.18.0.3  h1        one namespace per host, one per network switch
            198.18.0.2 ── w1 ──── s1 ──── w3 ── 198.18.0.4            one wire per cable between two of them

**Addresses.** A NIC has one address, and so has a host without NICs, however many cables it has, and a switch: it is
reached there by every route. They are from 198.18.0.0/15, the block that RFC 2544 reserves for network benchmarks. The
two ends of a wire also have link-local addresses (169.254.0.0/16), next hops that cannot be mistaken for a route to a
host.

**What is left out.** Links inside a host (NVLink, PCIe) are not emulated: its ranks share memory. One-way links are
refused, since TCP needs answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from ipaddress import IPv4Address

from syntony.base.command import UserError
from syntony.base.wording import did_you_mean
from syntony.lab.wires.shaping import SEGMENT
from syntony.topologies.hosts import hosts_of
from syntony.topologies.topology import Link, Topology

DEFAULT_RATE = Fraction(25 * 10**6)
"""Bytes/s of the fastest wire: 200 Mbit/s."""

_FIRST_ADDRESS = IPv4Address("198.18.0.1")
_FIRST_LINK_ADDRESS = IPv4Address("169.254.1.0")
_MOST_MACHINES = 256


class LabError(UserError):
    """An impossible lab: a topology, rate, delay or fault that makes no sense, or a machine that cannot hold it."""


@dataclass(frozen=True)
class Port:
    """An address of a machine: at a NIC, or at the machine itself if it has none."""

    node: int  # of the topology
    address: str


@dataclass(frozen=True)
class Machine:
    """One namespace: a host (`h0`, `h1`, ...) or a switch between hosts (`s0`, ...), and the `nodes` it represents."""

    id: int
    name: str
    nodes: tuple[int, ...]
    ranks: tuple[int, ...]
    ports: tuple[Port, ...]
    forwards: bool


@dataclass(frozen=True)
class End:
    """One end of a wire; what leaves there takes link `link`, at most `rate` bytes/s."""

    machine: int
    node: int
    link_address: str
    link: int
    rate: Fraction


@dataclass(frozen=True)
class Wire:
    """One cable between two machines, both of which name their device after it. `delay`: seconds each way; `loss`: the
    share of packets lost each way."""

    id: int
    ends: tuple[End, End]
    delay: float
    loss: float = 0.0

    @property
    def by_process(self) -> bool:
        """Whether a process forwards the packets, since the kernel's veth pairs neither delay nor lose them."""
        return self.delay > 0 or self.loss > 0

    @property
    def name(self) -> str:
        return f"w{self.id}"


@dataclass(frozen=True)
class LabSpec:
    """The plan of a lab. `packet`: bytes that the kernel passes through a wire at once."""

    topology: Topology
    machines: tuple[Machine, ...]
    wires: tuple[Wire, ...]
    packet: int = SEGMENT

    @cached_property
    def hosts(self) -> tuple[Machine, ...]:
        """The machines that have ranks, in the order of their lowest ranks."""
        return tuple(machine for machine in self.machines if machine.ranks)

    @cached_property
    def host_of(self) -> Mapping[int, Machine]:
        """By rank."""
        return {rank: host for host in self.hosts for rank in host.ranks}

    def wires_of(self, machine: int) -> tuple[tuple[Wire, End, End], ...]:
        """The wires plugged into `machine`, each with its own end and the far one."""
        return self._plugged[machine]

    @cached_property
    def _plugged(self) -> tuple[tuple[tuple[Wire, End, End], ...], ...]:
        plugged: list[list[tuple[Wire, End, End]]] = [[] for _ in self.machines]
        for wire in self.wires:
            for near, far in (wire.ends, wire.ends[::-1]):
                plugged[near.machine].append((wire, near, far))
        return tuple(tuple(wires) for wires in plugged)

    def label(self, machine: Machine) -> str:
        """The nodes of the machine, by the topology's names: `rank0 rank1 nic0.0`."""
        return " ".join(self.topology.nodes[node].name for node in machine.nodes)

    def wires_between(self, pair: str) -> tuple[Wire, ...]:
        """The wires named by `A-B`: A and B are nodes of the topology or machines of the lab, in either order.

        Raises LabError that names the word if it is unknown or no wire joins the two.
        """
        dashes = [place for place, letter in enumerate(pair) if letter == "-"]  # names may contain dashes too
        splits = [(pair[:dash], pair[dash + 1 :]) for dash in dashes if 0 < dash < len(pair) - 1]
        if not splits:
            raise LabError(f"{pair!r} names no wire; one is named by its two ends, such as {self._example()}")
        known = [split for split in splits if all(word in self._places for word in split)]
        if not known:
            stranger = next(word for word in splits[0] if word not in self._places)
            guess = did_you_mean(stranger, self._places) or f"; a wire is named like {self._example()}"
            raise LabError(f"{pair!r}: there is no {stranger!r} in the lab of {self.topology.name}{guess}")
        one, other = (self._places[word] for word in known[0])
        found = tuple(
            wire
            for wire in self.wires
            if any(_is_at(near, one) and _is_at(far, other) for near, far in (wire.ends, wire.ends[::-1]))
        )
        if not found:
            raise LabError(f"{pair!r}: no wire of the lab leads from {known[0][0]} to {known[0][1]}")
        return found

    @cached_property
    def _places(self) -> Mapping[str, tuple[int, int | None]]:
        """By every name that a user may write: the machine and, if only one of its nodes is meant, that node.

        The topology's own names take precedence over the lab's.
        """
        places: dict[str, tuple[int, int | None]] = {machine.name: (machine.id, None) for machine in self.machines}
        plugs = {end.node for wire in self.wires for end in wire.ends}
        for machine in self.machines:
            for node in machine.nodes:
                places[self.topology.nodes[node].name] = (machine.id, node if node in plugs else None)
        return places

    def _example(self) -> str:
        near, far = self.wires[0].ends if self.wires else (None, None)
        return (
            f"{self.topology.nodes[near.node].name}-{self.topology.nodes[far.node].name}" if near and far else "h0-h1"
        )


def spec_of(topology: Topology) -> LabSpec:
    """The lab of `topology`, with the topology's rates and without delay.

    Raises LabError for one-way links and for more machines than one computer can hold.
    """
    hosts = hosts_of(topology)
    inside = {node for host in hosts for node in host.nodes}
    switches = [node for node in topology.nodes if node.id not in inside]
    if len(hosts) + len(switches) > _MOST_MACHINES:
        raise LabError(
            f"{topology.name} has {len(hosts)} hosts and {len(switches)} switches; "
            f"the lab holds {_MOST_MACHINES} machines"
        )
    address = _FIRST_ADDRESS
    machines: list[Machine] = []

    def add(name: str, nodes: tuple[int, ...], ranks: tuple[int, ...], places: tuple[int, ...], forwards: bool) -> None:
        nonlocal address
        ports = tuple(Port(node, str(address + number)) for number, node in enumerate(places))
        address += len(places)
        machines.append(Machine(len(machines), name, nodes, ranks, ports, forwards))

    for number, host in enumerate(hosts):
        add(f"h{number}", host.nodes, host.ranks, host.nics or host.ranks[:1], not host.nics)
    for number, node in enumerate(switches):
        add(f"s{number}", (node.id,), (), (node.id,), True)
    home = {node: machine.id for machine in machines for node in machine.nodes}
    return LabSpec(topology, tuple(machines), tuple(_wires(topology, home)))


def at_rate(spec: LabSpec, rate: Fraction, at: str | None = None) -> LabSpec:
    """The lab with its rates scaled so that the fastest wire, or wire `at`, has `rate` bytes/s."""
    fastest = max(
        (end.rate for wire in (spec.wires_between(at) if at else spec.wires) for end in wire.ends), default=rate
    )
    scale = rate / fastest
    return replace(
        spec,
        wires=tuple(
            replace(wire, ends=(_faster(wire.ends[0], scale), _faster(wire.ends[1], scale))) for wire in spec.wires
        ),
    )


def delayed(spec: LabSpec, delay: float, at: str | None = None) -> LabSpec:
    """The lab with `delay` seconds each way on every wire, or on those that `at` names."""
    slow = {wire.id for wire in (spec.wires_between(at) if at else spec.wires)}
    return replace(spec, wires=tuple(replace(wire, delay=delay) if wire.id in slow else wire for wire in spec.wires))


def lossy(spec: LabSpec, loss: float, at: str | None = None) -> LabSpec:
    """The lab with that share of packets lost each way, on every wire, or on those that `at` names."""
    bad = {wire.id for wire in (spec.wires_between(at) if at else spec.wires)}
    return replace(spec, wires=tuple(replace(wire, loss=loss) if wire.id in bad else wire for wire in spec.wires))


def _wires(topology: Topology, home: Mapping[int, int]) -> Iterator[Wire]:
    """Pairs each link between two machines with a link back, in the order of their ids."""
    waiting: dict[tuple[int, int], list[Link]] = {}
    number = 0
    for link in topology.links:
        if home[link.src] == home[link.dst]:
            continue
        back = waiting.get((link.dst, link.src))
        if not back:
            waiting.setdefault((link.src, link.dst), []).append(link)
            continue
        ends: list[End] = []
        for sent in (back.pop(0), link):
            ends.append(
                End(
                    home[sent.src], sent.src, str(_FIRST_LINK_ADDRESS + 2 * number + len(ends)), sent.id, sent.bandwidth
                )
            )
        yield Wire(number, (ends[0], ends[1]), 0.0)
        number += 1
    for links in waiting.values():
        for link in links:
            source, destination = topology.nodes[link.src].name, topology.nodes[link.dst].name
            raise LabError(
                f"{topology.name}: link {link.id} leads from {source} to {destination} and none leads back; "
                "the lab speaks TCP, which must be answered"
            )


def _faster(end: End, scale: Fraction) -> End:
    return replace(end, rate=end.rate * scale)


def _is_at(end: End, place: tuple[int, int | None]) -> bool:
    machine, node = place
    return end.machine == machine and node in (None, end.node)
