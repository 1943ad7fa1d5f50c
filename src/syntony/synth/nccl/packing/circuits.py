"""One question to CP-SAT: do this many channels of this speed exist?

    K circuits through all GPUs (and, across hosts, through one NIC each, the others skipped)
    on every link: sum of cost * uses <= rate / speed

A chain is a circuit through one more node, which represents both ends. The same model with one circuit and prices
instead of limits finds the cheapest channel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import floor, lcm
from typing import TYPE_CHECKING

from syntony.synth.nccl.channels import Channel, Host, Shape
from syntony.synth.nccl.machine.machine import MachineNode
from syntony.synth.nccl.machine.paths import Costs

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import IntVar

Arcs = dict[tuple[int, int], "IntVar"]


class Circuits:
    """`count` circuits as a model of CP-SAT. Nodes are the GPUs, then the NICs, by position."""

    def __init__(self, host: Host, shape: Shape, count: int) -> None:
        from ortools.sat.python import cp_model

        self.host, self.shape = host, shape
        self.model = cp_model.CpModel()
        self.size = len(host.machine.gpus)
        self.nets = len(host.machine.nets) if host.across else 0
        self.uses = [self._circuit(channel) for channel in range(count)]

    def _node(self, number: int) -> MachineNode:
        machine = self.host.machine
        return machine.gpus[number].node if number < self.size else machine.nets[number - self.size].node

    def _circuit(self, channel: int) -> Arcs:
        """A ring: GPUs and one NIC. A chain: through an extra node, from its last GPU to its first or its NIC."""
        new = self.model.new_bool_var
        gpus, nets = range(self.size), range(self.size, self.size + self.nets)
        arcs = {(a, b): new(f"{channel} {a} {b}") for a in gpus for b in gpus if a != b}
        chain = self.shape == "chain"
        end = self.size + self.nets
        every = dict(arcs)
        for net in nets:
            skipped = new(f"{channel} without {net}")
            every[net, net] = skipped
            for gpu in gpus:
                for a, b in ((net, gpu),) if chain else ((net, gpu), (gpu, net)):
                    if self.host.joined(self.shape, self._node(a), self._node(b)):
                        arcs[a, b] = every[a, b] = new(f"{channel} {a} {b}")
            if chain:
                every[end, net] = new(f"{channel} {end} {net}")
        if nets:
            self.model.add_exactly_one(every[net, net].negated() for net in nets)
        if chain:
            for gpu in gpus:
                every[gpu, end] = new(f"{channel} {gpu} {end}")
                if not nets:
                    every[end, gpu] = new(f"{channel} {end} {gpu}")
        self.model.add_circuit([(a, b, literal) for (a, b), literal in every.items()])
        return arcs

    def limit(self, speed: Fraction, used: Costs | None = None) -> None:
        """Every circuit carries `speed` GB/s, as do others whose costs are `used`."""
        host, machine = self.host, self.host.machine
        terms: dict[int, list[tuple[IntVar, Fraction]]] = {}
        ports: dict[tuple[str, int], list[IntVar]] = {}
        for uses in self.uses:
            for (a, b), literal in uses.items():
                for src, dst in ((a, b), (b, a)) if self.shape == "chain" else ((a, b),):
                    for link, cost in host.hop(self.shape, self._node(src), self._node(dst)).items():
                        terms.setdefault(link, []).append((literal, cost))
                if a >= self.size:
                    ports.setdefault(machine.nets[a - self.size].port, []).append(literal)
        for link, costs in terms.items():
            scale = lcm(*(cost.denominator for _, cost in costs))
            taken = (used or {}).get(link, Fraction(0))
            room = floor((machine.links[link].rate / speed - taken) * scale)
            if sum(cost for _, cost in costs) * scale > room:
                self.model.add(sum(int(cost * scale) * literal for literal, cost in costs) <= room)
        for port, literals in ports.items():
            self.model.add(sum(literals) <= floor(host.port_rates[port] / speed))

    def minimize(self, prices: Mapping[int, float], port_prices: Mapping[tuple[str, int], float], scale: int) -> None:
        """Minimizes the price of a circuit; prices per byte on a link and at a port, rounded to 1 / `scale`."""
        machine = self.host.machine
        terms = []
        for uses in self.uses:
            for (a, b), literal in uses.items():
                price = 0.0
                for src, dst in ((a, b), (b, a)) if self.shape == "chain" else ((a, b),):
                    hop = self.host.hop(self.shape, self._node(src), self._node(dst))
                    price += sum(float(cost) * prices.get(link, 0.0) for link, cost in hop.items())
                if a >= self.size:
                    price += port_prices.get(machine.nets[a - self.size].port, 0.0)
                terms.append(round(price * scale) * literal)
        self.model.minimize(sum(terms))

    def ask(self, seconds: float, seed: int, gap: float = 0.0) -> tuple[tuple[Channel, ...] | None, bool]:
        """The channels, or None; and whether the answer is certain. A result within `gap` of the cheapest suffices."""
        from ortools.sat.python import cp_model

        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = seed
        solver.parameters.relative_gap_limit = gap
        status = solver.solve(self.model)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return tuple(self._channel(uses, solver.boolean_value) for uses in self.uses), True
        return None, status == cp_model.INFEASIBLE

    def _channel(self, uses: Arcs, chosen: Callable[[IntVar], bool]) -> Channel:
        following = {a: b for (a, b), literal in uses.items() if a < self.size and b < self.size and chosen(literal)}
        starts = [(a, b) for (a, b), literal in uses.items() if a >= self.size and chosen(literal)]
        if starts:
            net, first = starts[0]
        else:
            net, first = -1, 0 if self.shape == "ring" else next(iter(set(range(self.size)) - set(following.values())))
        order = [first]
        while len(order) < self.size:
            order.append(following[order[-1]])
        return Channel(tuple(order), (net - self.size,) * 2 if starts else ())
