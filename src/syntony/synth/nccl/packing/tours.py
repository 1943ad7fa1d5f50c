"""Channels as the columns of a linear program: how much should each possible tour carry?

    maximize  sum of w(t)   so that on every link   sum of cost(t, link) * w(t) <= rate

There are too many tours to list, so the program begins with few. Its dual prices the links; the cheapest tour at these
prices (circuits.py) is added until the cheapest costs 1: then no tour improves it (column generation: Gilmore and
Gomory 1961). Speeds of channels must be equal, so the solution is not a set of channels yet: `choose` asks which of the
tours to take how often.
"""

from __future__ import annotations

import time
from fractions import Fraction
from math import floor, lcm

import numpy as np
from scipy.optimize import linprog

from syntony.synth.nccl.channels import Channel, Host, Shape
from syntony.synth.nccl.machine.paths import Costs
from syntony.synth.nccl.packing.circuits import Circuits

_SCALE = 1 << 20  # of prices; a channel costs about one
_PATIENCE = 2.0  # seconds for one tour or one choice


class Tours:
    """Tours worth choosing from, and their costs."""

    def __init__(self, host: Host, shape: Shape, seed: int) -> None:
        self._host, self._shape, self._seed = host, shape, seed
        self.tours: list[Channel] = []
        self._loads: list[Costs] = []
        self._ports = list(host.port_rates) if host.across else []

    def collect(self, goal: Fraction, seconds: float) -> float:
        """Adds tours until the best mixture reaches `goal`, none improves it, or time is up; returns its rate."""
        deadline = time.monotonic() + seconds
        prices: dict[int, float] = {link.id: 1 / float(link.rate) for link in self._host.machine.links}
        ports = dict.fromkeys(self._ports, 0.0)
        rate = 0.0
        while rate < float(goal) * (1 - 1e-6) and time.monotonic() < deadline:
            circuits = Circuits(self._host, self._shape, 1)
            circuits.minimize(prices, ports, _SCALE)
            found, _ = circuits.ask(_PATIENCE, self._seed)
            if found is None or found[0] in self.tours:
                break
            self._add(found[0])
            rate, prices, ports = self._mixture()
        return rate

    def _add(self, tour: Channel) -> None:
        self.tours.append(tour)
        self._loads.append(self._host.loads(self._shape, [tour]))

    def _rows(self) -> tuple[list[int], list[Fraction]]:
        links = sorted({link for loads in self._loads for link in loads})
        rates = [self._host.machine.links[link].rate for link in links]
        return links, rates + [self._host.port_rates[port] for port in self._ports]

    def _mixture(self) -> tuple[float, dict[int, float], dict[tuple[str, int], float]]:
        """The best mixture of the tours: its rate, and the prices of links and ports."""
        links, rates = self._rows()
        matrix = np.zeros((len(rates), len(self.tours)))
        for column, (tour, loads) in enumerate(zip(self.tours, self._loads, strict=True)):
            for row, link in enumerate(links):
                matrix[row, column] = float(loads.get(link, 0))
            for place, port in enumerate(self._ports):
                matrix[len(links) + place, column] = self._host.machine.nets[tour.nets[0]].port == port
        limits = np.array([float(rate) for rate in rates])
        found = linprog(-np.ones(len(self.tours)), A_ub=matrix, b_ub=limits, method="highs")
        duals = -found.ineqlin.marginals
        prices = {link: float(duals[row]) for row, link in enumerate(links)}
        ports = {port: float(duals[len(links) + place]) for place, port in enumerate(self._ports)}
        return -float(found.fun), prices, ports

    def one_by_one(self, speed: Fraction, most: int, deadline: float, gap: float) -> tuple[Channel, ...]:
        """Channels of this speed, each found beside the earlier ones, on the links with the most remaining capacity.

        Each costs at most `gap` more than the cheapest: approximate answers come much sooner.
        """
        links = self._host.machine.links
        chosen: list[Channel] = []
        while len(chosen) < most and time.monotonic() < deadline:
            used = self._host.loads(self._shape, chosen)
            left = {link.id: float(link.rate / speed - used.get(link.id, 0)) for link in links}
            circuits = Circuits(self._host, self._shape, 1)
            circuits.limit(speed, used)
            prices = {link: 1 / max(room, 0.5) ** 2 for link, room in left.items()}
            ports = self._host.port_loads(chosen)
            full = {
                port: float(1 << 10 if (ports.get(port, 0) + 1) * speed > rate else ports.get(port, 0))
                for port, rate in self._host.port_rates.items()
            }
            circuits.minimize(prices, full, 1 << 10)
            found, _ = circuits.ask(_PATIENCE, self._seed + len(chosen), gap)
            if found is None:
                break
            (tour,) = found
            if tour.nets and full[self._host.machine.nets[tour.nets[0]].port] >= 1 << 10:
                break
            chosen.append(tour)
            if tour not in self.tours:
                self._add(tour)
        return tuple(chosen)

    def choose(self, count: int, speed: Fraction) -> tuple[Channel, ...] | None:
        """`count` of the tours, possibly repeated, that all run at `speed`; None if there are none."""
        from ortools.sat.python import cp_model

        if not self.tours:
            return None
        model = cp_model.CpModel()
        times = [model.new_int_var(0, count, f"tour {tour}") for tour in range(len(self.tours))]
        model.add(sum(times) == count)
        links, rates = self._rows()
        for link, rate in zip(links, rates, strict=False):
            terms = [(uses, loads[link]) for uses, loads in zip(times, self._loads, strict=True) if link in loads]
            scale = lcm(*(cost.denominator for _, cost in terms))
            model.add(sum(int(cost * scale) * uses for uses, cost in terms) <= floor(rate * scale / speed))
        for port in self._ports:
            begun = [
                uses
                for uses, tour in zip(times, self.tours, strict=True)
                if self._host.machine.nets[tour.nets[0]].port == port
            ]
            model.add(sum(begun) <= floor(self._host.port_rates[port] / speed))
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = _PATIENCE
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = self._seed
        if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        return tuple(tour for tour, uses in zip(self.tours, times, strict=True) for _ in range(int(solver.value(uses))))
