"""Channels by depth-first search in the core (csrc/solve/graph/channel_search.hpp), deterministic on every machine.

For every speed suggested by a link, a port or NCCL itself, and for hops of the better kinds only or of all kinds, it
searches for as many channels as the bound allows. The effort is counted in steps, so a busy machine finds no less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np

from syntony import _solve
from syntony.synth.nccl.channels import Channel, Host, Shape
from syntony.synth.nccl.machine.machine import MachineNode
from syntony.synth.nccl.machine.paths import PathKind

STEPS = 20_000
"""Per search; about 10 ms."""
_TURNS = 2  # ways to break ties

# The speeds that NCCL's search tries, GB/s: before Hopper, Hopper, and Blackwell (src/graph/search.cc of NCCL 2.30).
_INSIDE = (
    (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
)
_ACROSS = (
    (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
    (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
)


def nccl_speeds(host: Host) -> tuple[Fraction, ...]:
    """The speeds of channels (GB/s) that NCCL's search tries on this host."""
    capability = min(gpu.capability for gpu in host.machine.gpus)
    lists = _ACROSS if host.across else _INSIDE
    return tuple(Fraction(str(speed)) for speed in lists[2 if capability >= 100 else 1 if capability >= 90 else 0])


def estimated_own(host: Host, shape: Shape, bound: float, most: int = 32) -> Fraction:
    """An estimate of the most that NCCL's own search finds (GB/s): the best total of this search at NCCL's speeds.

    In 30 cases run with NCCL 2.30.7, it was NCCL's own total in 15, and more in the others.
    """
    best = Fraction(0)

    def wanted(speed: Fraction) -> int:
        count = min(most, int(bound * (1 + 1e-6) / float(speed)))
        return count if count * speed > best else 0

    for speed in nccl_speeds(host):

        def take(found: tuple[Channel, ...], speed: Fraction = speed) -> None:
            nonlocal best
            best = max(best, len(found) * speed)

        DepthFirst(host, shape).sets([speed], wanted, take)
    return best


class DepthFirst:
    """The hops of a host as columns, one list for each worst kind of path."""

    def __init__(self, host: Host, shape: Shape) -> None:
        machine = host.machine
        self._host, self._shape = host, shape
        self._nets = len(machine.nets) if host.across else 0
        self._nodes = [gpu.node for gpu in machine.gpus]
        self._nodes += [net.node for net in machine.nets[: self._nets]]
        self._ports = {port: len(machine.links) + place for place, port in enumerate(host.port_rates)}
        rates = [link.rate for link in machine.links] + [host.port_rates[port] for port in self._ports]
        self._rates = np.array([float(rate) for rate in rates])
        hops = [
            (a, b) for a in range(len(self._nodes)) for b in range(len(self._nodes)) if a != b and self._possible(a, b)
        ]
        kinds = {hop: self._kind(*hop) for hop in hops}
        inside = sorted({kind for (a, b), kind in kinds.items() if max(a, b) < len(machine.gpus)})
        self._columns = [
            self._written({hop for hop in hops if max(hop) >= len(machine.gpus) or kinds[hop] <= worst})
            for worst in inside or [PathKind.SYS]
        ]

    def sets(
        self, speeds: Iterable[Fraction], most: Callable[[Fraction], int], take: Callable[[tuple[Channel, ...]], None]
    ) -> None:
        """Passes sets of channels to `take`; `most(speed)` says how many to look for, 0 for none."""
        for speed in speeds:
            for columns in self._columns:
                for turn in range(_TURNS):
                    count = most(speed)
                    if count:
                        found = self._find(speed, columns, count, turn)
                        for number in range(len(found), 0, -1):
                            take(found[:number])

    def _find(
        self, speed: Fraction, columns: tuple[np.ndarray, np.ndarray, np.ndarray], most: int, turn: int
    ) -> tuple[Channel, ...]:
        gpus = len(self._host.machine.gpus)
        room = self._rates / float(speed) + 1e-9
        flat = _solve.find_channels(gpus, self._nets, self._shape == "ring", *columns, room, most, STEPS, turn)
        rows = np.reshape(flat, (-1, gpus + 1)).tolist()
        return tuple(Channel(tuple(order), (net, net) if net >= 0 else ()) for net, *order in rows)

    def _possible(self, a: int, b: int) -> bool:
        gpus = len(self._host.machine.gpus)
        if a >= gpus and b >= gpus:
            return False
        if self._shape == "chain" and b >= gpus:
            return False  # a chain's hops are used in both directions, from the device on
        return self._host.joined(self._shape, self._nodes[a], self._nodes[b])

    def _ways(self, a: int, b: int) -> Iterable[tuple[MachineNode, MachineNode]]:
        yield self._nodes[a], self._nodes[b]
        if self._shape == "chain":
            yield self._nodes[b], self._nodes[a]

    def _kind(self, a: int, b: int) -> PathKind:
        return max(self._host.paths.between(src, dst).kind for src, dst in self._ways(a, b))

    def _written(self, hops: set[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        size, gpus = len(self._nodes), len(self._host.machine.gpus)
        offset, link, cost = [0], [], []
        for a in range(size):
            for b in range(size):
                costs: dict[int, float] = {}
                if (a, b) in hops:
                    for src, dst in self._ways(a, b):
                        for one, part in self._host.hop(self._shape, src, dst).items():
                            costs[one] = costs.get(one, 0.0) + float(part)
                    if a >= gpus:
                        costs[self._ports[self._host.machine.nets[a - gpus].port]] = 1.0
                link += list(costs)
                cost += list(costs.values())
                offset.append(len(link))
        return np.array(offset, np.int64), np.array(link, np.int32), np.array(cost, np.float64)
