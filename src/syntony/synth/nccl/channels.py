"""Channels: the order in which data visits the GPUs of a host, and how fast a set of them can run at once.

    within a host     ring    a > b > c > d > a            chain   a - b - c - d
    across hosts      ring    nic > a > b > c > d > nic    chain   nic - a - b - c - d

All channels of a set run at one speed, which is bus bandwidth, as in NCCL's cost model and nccl-tests: an all_reduce
of S bytes takes 2 S / speed for both shapes.

    ring    a byte of the channel is a byte on each hop
    chain   a part of NCCL's double tree, which sums towards the head of the chain (S on each hop) and spreads back
            (S the other way): half a byte each way. A NIC carries two of the tree's edges: one byte each way

If channels span hosts, each uses one NIC in both directions, so the same file on every host joins NICs of equal numbers
(rails).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Literal

from syntony.synth.nccl.machine.machine import Machine, MachineError, MachineNode
from syntony.synth.nccl.machine.paths import Costs, PathKind, Paths

Shape = Literal["ring", "chain"]


@dataclass(frozen=True)
class Channel:
    """Positions in Machine.gpus, in order, and the NICs (positions in Machine.nets) of both ends; () within a host."""

    gpus: tuple[int, ...]
    nets: tuple[int, ...] = ()


@dataclass(frozen=True)
class ChannelSet:
    """Channels and their common speed, GB/s."""

    shape: Shape
    channels: tuple[Channel, ...]
    speed: Fraction

    @property
    def total(self) -> Fraction:
        """Total rate of all channels, GB/s: bus bandwidth in the sense of nccl-tests."""
        return self.speed * len(self.channels)


class Host:
    """A machine with its paths, and the cost of channels on it. `across`: the channels lead to other hosts."""

    def __init__(self, machine: Machine, *, across: bool) -> None:
        if across and not machine.nets:
            raise MachineError(f"{machine.name}: it has no network device, so channels cannot lead to other hosts")
        if len(machine.gpus) < 2 and not across:
            raise MachineError(f"{machine.name}: it has one GPU, and nothing to order")
        self.machine, self.across = machine, across
        self.paths = Paths(machine)
        self._memory: dict[tuple[Shape, MachineNode, MachineNode], Costs] = {}

    def joined(self, shape: Shape, src: MachineNode, dst: MachineNode) -> bool:
        """Whether a hop of a channel can lead from `src` to `dst`; hops of chains are used in both directions."""
        return self.paths.reaches(src, dst) and (shape == "ring" or self.paths.reaches(dst, src))

    def hop(self, shape: Shape, src: MachineNode, dst: MachineNode) -> Costs:
        """The cost of one byte of a channel of this shape on each link from `src` to `dst`."""
        found = self._memory.get((shape, src, dst))
        if found is None:
            half = shape == "chain" and src.kind == dst.kind == "gpu"
            costs = self.paths.costs(src, dst)
            found = {link: cost / 2 for link, cost in costs.items()} if half else costs
            self._memory[shape, src, dst] = found
        return found

    def hops(self, shape: Shape, channel: Channel) -> Iterable[tuple[MachineNode, MachineNode]]:
        """The hops of a channel, each with its direction."""
        gpus = [self.machine.gpus[gpu].node for gpu in channel.gpus]
        pairs = list(pairwise(gpus))
        if shape == "ring" and not self.across and len(gpus) > 1:
            pairs.append((gpus[-1], gpus[0]))
        if self.across:
            arriving, leaving = (self.machine.nets[net].node for net in channel.nets)
            if shape == "ring":
                pairs = [(arriving, gpus[0]), *pairs, (gpus[-1], leaving)]
            else:
                pairs = [(arriving, gpus[0]), *pairs]
        yield from pairs
        if shape == "chain":
            yield from ((dst, src) for src, dst in pairs)

    def loads(self, shape: Shape, channels: Iterable[Channel]) -> Costs:
        """The cost of all channels on each link, for a byte on each of them."""
        loads: Costs = {}
        for channel in channels:
            for src, dst in self.hops(shape, channel):
                for link, cost in self.hop(shape, src, dst).items():
                    loads[link] = loads.get(link, Fraction(0)) + cost
        return loads

    def speed(self, shape: Shape, channels: Sequence[Channel]) -> Fraction:
        """The highest common speed of the channels, GB/s, at most that of one thread block."""
        return min(self.link_speed(shape, channels), self.machine.channel_rate)

    def link_speed(self, shape: Shape, channels: Sequence[Channel]) -> Fraction:
        """The highest common speed that links and ports allow, GB/s."""
        loads = self.loads(shape, channels)
        links = self.machine.links
        limits = [links[link].rate / load for link, load in loads.items()]
        limits.extend(self.port_rates[port] / load for port, load in self.port_loads(channels).items())
        return min(limits)

    @cached_property
    def port_rates(self) -> dict[tuple[str, int], Fraction]:
        """The rate of each port of a card, GB/s: devices of one port share it."""
        return {net.port: net.rate for net in self.machine.nets}

    def port_loads(self, channels: Iterable[Channel]) -> dict[tuple[str, int], int]:
        """How many channels begin at each port."""
        loads: dict[tuple[str, int], int] = {}
        for channel in channels:
            if channel.nets:
                port = self.machine.nets[channel.nets[0]].port
                loads[port] = loads.get(port, 0) + 1
        return loads

    def kinds(self, shape: Shape, channels: Iterable[Channel]) -> tuple[PathKind, PathKind]:
        """The worst kind of path between GPUs, and to NICs; the latter is PIX if there are none."""
        intra, inter = PathKind.LOC, PathKind.LOC
        for channel in channels:
            for src, dst in self.hops(shape, channel):
                kind = self.paths.between(src, dst).kind
                if src.kind == dst.kind == "gpu":
                    intra = max(intra, kind)
                else:
                    inter = max(inter, kind)
        return intra, inter if self.across else PathKind.PIX

    def fault(self, chosen: ChannelSet) -> str:
        """The first fault of a set of channels, in a sentence; empty if there is none.

        Every channel visits every GPU once, all or none use NICs, no link carries more than its rate.
        """
        machine = self.machine
        for number, channel in enumerate(chosen.channels):
            if sorted(channel.gpus) != list(range(len(machine.gpus))):
                missing = sorted(set(range(len(machine.gpus))) - set(channel.gpus))
                twice = sorted({gpu for gpu in channel.gpus if channel.gpus.count(gpu) > 1})
                names = [machine.gpus[gpu].node.name for gpu in twice or missing]
                return f"channel {number} {'visits twice' if twice else 'leaves out'} {', '.join(names)}"
            if self.across and len(channel.nets) != 2:
                return f"channel {number} names {len(channel.nets)} network devices; across hosts it has two ends"
        if not chosen.channels:
            return "it has no channels"
        for link, load in self.loads(chosen.shape, chosen.channels).items():
            wire = machine.links[link]
            if load * chosen.speed > wire.rate * _ROUNDED:
                return (
                    f"link {wire.src.name} > {wire.dst.name} carries {float(load * chosen.speed):g} GB/s, "
                    f"of {float(wire.rate):g}"
                )
        for port, begun in self.port_loads(chosen.channels).items():
            carried = begun * chosen.speed
            if carried > self.port_rates[port] * _ROUNDED:
                return (
                    f"port {port[1]} of {port[0]} carries {float(carried):g} GB/s, of {float(self.port_rates[port]):g}"
                )
        return ""


_ROUNDED = Fraction(100_001, 100_000)  # files have speeds in decimals
