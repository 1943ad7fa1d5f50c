"""Packs channels: as many tours as their common speed allows, at the highest total.

For K channels the speed s is rate / load of some link, so there are few candidates. First, regardless of the time:

    depth first     channel after channel, by a search whose effort is counted in steps (depth_first.py)

Then, until the bound is met or time is up:

    one by one      channel after channel at the speeds of the links, each in the remaining capacity (circuits.py)
    natural         any K circuits at the speeds of the links
    mixed           K tours of the fractional optimum (tours.py)
    every number    any K circuits at any speed, by bisection, since slower is always easier

One thread block carries a channel, which limits its speed, so fast channels are written several times.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, lcm

from syntony.synth.nccl.channels import Channel, ChannelSet, Host, Shape
from syntony.synth.nccl.machine.machine import MachineError
from syntony.synth.nccl.packing.bound import ChannelBound, channel_bound
from syntony.synth.nccl.packing.circuits import Circuits
from syntony.synth.nccl.packing.depth_first import DepthFirst, nccl_speeds
from syntony.synth.nccl.packing.tours import Tours

MOST_CHANNELS = 32
"""NCCL's own search uses at most half of MAXCHANNELS (64)."""
_NEAR = Fraction(9999, 10_000)  # of the bound counts as reaching it
_HALF = Fraction(1, 2)
_BETTER = Fraction(10_001, 10_000)
_GAPS = (0.25, 0.05, 0.0)  # allowed excess of the next channel's cost over the cheapest
_PATIENCE = (1.0, 10.0)  # seconds for one speed and number of channels


@dataclass(frozen=True)
class Packing:
    """The best channels found, and an upper bound on their rate."""

    chosen: ChannelSet
    bound: ChannelBound
    complete: bool
    """Whether every question was answered in time: then no better set has at most that many channels."""

    @property
    def fraction(self) -> float:
        """Part of the bound."""
        return float(self.chosen.total) / self.bound.rate


def pack(
    host: Host,
    shape: Shape,
    *,
    most: int = MOST_CHANNELS,
    exactly: int = 0,
    beside: Sequence[tuple[Channel, ...]] = (),
    timeout: float = 60.0,
    seed: int = 0,
) -> Packing:
    """The channels with the highest total rate: at most `most`, or a divisor of `exactly`, then repeated.

    Never worse than any of the sets `beside`. Among equal rates, the fewest channels.
    """
    bound = channel_bound(host, shape, exactly or most)
    goal, cap = Fraction(bound.rate), host.machine.channel_rate
    counts = [count for count in range(1, (exactly or most) + 1) if not exactly or exactly % count == 0]
    copies = {count: (exactly or most) // count for count in counts}
    speeds = {count: _speeds(host, shape, count, min(goal / count, cap * copies[count])) for count in counts}
    search = _Search(host, shape, goal, copies, speeds, time.monotonic() + timeout, seed)
    for tours in beside:
        search.take(tours)
    search.depth_first()
    search.one_by_one()
    search.natural()
    search.mixed(timeout / 6)
    best, complete = search.every_number()
    return Packing(_repeated(best, cap, exactly), bound, complete)


@dataclass
class _Search:
    """The best set so far, and the methods to improve it, from the quick to the thorough."""

    host: Host
    shape: Shape
    goal: Fraction
    copies: dict[int, int]
    speeds: dict[int, list[Fraction]]
    deadline: float
    seed: int

    def __post_init__(self) -> None:
        self.tours = Tours(self.host, self.shape, self.seed)
        self.best = ChannelSet(self.shape, (), Fraction(0))
        self.take((_in_order(self.host, self.shape),))

    def take(self, channels: tuple[Channel, ...]) -> None:
        """Keeps these channels if they are better than the best, or as good with fewer."""
        if len(channels) not in self.copies:
            return
        found = ChannelSet(self.shape, channels, self._speed(channels))
        fewer = found.total == self.best.total and len(channels) < len(self.best.channels)
        if found.total > self.best.total or fewer:
            self.best = found

    def _speed(self, channels: tuple[Channel, ...]) -> Fraction:
        """The speed of these channels, each of which may be written several times."""
        copies = self.copies[len(channels)]
        return min(self.host.link_speed(self.shape, channels), self.host.machine.channel_rate * copies)

    @property
    def done(self) -> bool:
        return self.best.total >= self.goal * _NEAR or time.monotonic() > self.deadline

    def _promising(self, total: Fraction) -> bool:
        return not self.done and self.best.total * _BETTER < total <= self.goal

    def _natural_speeds(self) -> list[Fraction]:
        """The speeds of links and ports, their halves and doubles: these fill links without a remainder."""
        rates = {link.rate for link in self.host.machine.links if link.kind != "NET"}
        rates |= set(self.host.port_rates.values()) if self.host.across else set()
        return sorted(
            {rate / part for rate in rates for part in (_HALF, 1, 2) if rate / part <= self.goal}, reverse=True
        )

    def depth_first(self) -> None:
        """At natural speeds and NCCL's, the highest totals first; without a time limit."""
        speeds = {*self._natural_speeds(), *(speed for speed in nccl_speeds(self.host) if speed <= self.goal)}

        def most(speed: Fraction) -> int:
            if self.best.total >= self.goal * _NEAR:
                return 0
            count = min(max(self.copies), int(self.goal / speed))
            return count if count * speed > self.best.total else 0

        ordered = sorted(speeds, key=lambda speed: (-(self.goal // speed) * speed, -speed))
        DepthFirst(self.host, self.shape).sets(ordered, most, self.take)

    def one_by_one(self) -> None:
        """Channel after channel at each natural speed; also smaller numbers of the channels found."""
        ordered = sorted(self._natural_speeds(), key=lambda speed: (-(self.goal // speed) * speed, -speed))
        for gap in _GAPS:
            for speed in ordered:
                if self.done:
                    return
                if not self._promising(self.goal // speed * speed):
                    continue
                share = 2 if gap == _GAPS[0] else 4
                part = time.monotonic() + (self.deadline - time.monotonic()) / share
                found = self.tours.one_by_one(speed, max(self.copies), part, gap)
                for count in range(len(found), 0, -1):
                    self.take(found[:count])

    def natural(self) -> None:
        """All channels of a natural speed at once, the highest totals first."""
        speeds = self._natural_speeds()
        pairs = [
            (count * speed, count, speed) for count in self.copies for speed in speeds if speed <= self.speeds[count][0]
        ]
        for total, count, speed in sorted(pairs, key=lambda pair: (-pair[0], pair[1])):
            if self._promising(total) and self._ask(count, speed, _PATIENCE[-1] / 2):
                return

    def mixed(self, seconds: float) -> None:
        """Numbers of tours of the fractional optimum."""
        if self.done:
            return
        self.tours.collect(self.goal, min(seconds, self.deadline - time.monotonic()))
        for count, speeds in self.speeds.items():
            for speed in speeds:
                if not self._promising(count * speed):
                    break
                if channels := self.tours.choose(count, speed):
                    self.take(channels)
                    break

    def every_number(self) -> tuple[ChannelSet, bool]:
        """Bisection over the speeds of every number of channels, quickly, then patiently."""
        complete = True
        for patience in _PATIENCE:
            complete = True
            for count in sorted(self.copies, key=lambda count: (-count * self.speeds[count][0], count)):
                speeds = [speed for speed in self.speeds[count] if count * speed > self.best.total * _BETTER]
                if not speeds or self.best.total >= self.goal * _NEAR:
                    continue
                if time.monotonic() > self.deadline:
                    return self.best, False
                complete = self._bisect(count, speeds, patience) and complete
            if complete:
                break
        return self.best, complete

    def _bisect(self, count: int, speeds: list[Fraction], patience: float) -> bool:
        """Looks for the fastest of `speeds` (highest first); returns whether all questions were answered."""
        answered = True
        # The first question is the easiest: is there any better set?
        low, high, middle = 0, len(speeds), len(speeds) - 1
        while low < high:
            found = self._ask(count, speeds[middle], patience)
            answered = answered and found is not None
            if not found:
                if middle == len(speeds) - 1 and high == len(speeds):
                    return answered
                low = middle + 1
            else:
                high = middle
                while high and speeds[high - 1] * count <= self.best.total:
                    high -= 1
            middle = (low + high) // 2
        return answered

    def _ask(self, count: int, speed: Fraction, patience: float) -> bool | None:
        """Whether this many channels of this speed exist; None if that was not found out."""
        circuits = Circuits(self.host, self.shape, count)
        circuits.limit(speed)
        seconds = max(0.1, min(patience, self.deadline - time.monotonic()))
        channels, decided = circuits.ask(seconds, self.seed)
        if channels is not None:
            self.take(channels)
            return True
        return False if decided else None


def _repeated(chosen: ChannelSet, cap: Fraction, exactly: int) -> ChannelSet:
    """The same channels so often that none is faster than one block of threads."""
    times = exactly // len(chosen.channels) if exactly else max(1, ceil(chosen.speed / cap))
    return ChannelSet(chosen.shape, chosen.channels * times, chosen.speed / times)


def _in_order(host: Host, shape: Shape) -> Channel:
    """GPUs in the order of their numbers: a channel that nearly always is, seldom a good one."""
    gpus = tuple(range(len(host.machine.gpus)))
    if not host.across:
        return Channel(gpus)
    nodes = [gpu.node for gpu in host.machine.gpus]
    for place, net in enumerate(host.machine.nets):
        for first in gpus:
            order = (*gpus[first:], *gpus[:first])
            back = shape == "chain" or host.joined(shape, nodes[order[-1]], net.node)
            if back and host.joined(shape, net.node, nodes[first]):
                return Channel(order, (place, place))
    raise MachineError(f"{host.machine.name}: no GPU reaches a network device")


def _speeds(host: Host, shape: Shape, count: int, highest: Fraction) -> list[Fraction]:
    """Speeds up to `highest` at which some link is just full, highest first."""
    machine = host.machine
    steps = lcm(*(cost.denominator for cost in _all_costs(host, shape)))
    rates = {link.rate for link in machine.links if link.kind != "NET"}
    rates |= set(host.port_rates.values()) if host.across else set()
    speeds = {rate * steps / load for rate in rates for load in range(1, 2 * count * steps + 1)}
    ordered = sorted((speed for speed in (*speeds, highest) if speed <= highest), reverse=True)
    return ordered if len(ordered) <= 400 else ordered[:: -(-len(ordered) // 400)]


def _all_costs(host: Host, shape: Shape) -> set[Fraction]:
    nodes = [gpu.node for gpu in host.machine.gpus]
    nets = [net.node for net in host.machine.nets] if host.across else []
    pairs = [(one, other) for one in nodes for other in nodes if one is not other]
    pairs += [pair for net in nets for node in nodes for pair in ((net, node), (node, net))]
    return {cost for src, dst in pairs if host.joined(shape, src, dst) for cost in host.hop(shape, src, dst).values()}
