"""An upper bound on the rate of any set of channels: a linear program over fractional tours.

    x(a, b)   how much of all channels goes from a to b; R in total, to be maximized
    every GPU is entered R times and left R times; what enters a NIC leaves it (it is both ends of one channel)
    links:    sum over hops of cost * x <= rate
    tours:    at least R leaves every proper set S of GPUs (Dantzig, Fulkerson and Johnson's subtour elimination)

Every set of channels gives such an x, whatever their speeds, so R is a bound. Sets S are added while a minimum cut
of x is below R. For chains x is undirected, each GPU has at most 2 R hops, and a cut has at least R; both directions
of a hop load their links. The optimum is found in floats (HiGHS); the reported bound is larger by a millionth to cover
rounding errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import networkx
import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from syntony.synth.nccl.channels import Host, Shape
from syntony.synth.nccl.machine.machine import MachineError

TOLERANCE = 1e-6


@dataclass(frozen=True)
class ChannelBound:
    """GB/s that no channels exceed, and the links, ports or per-channel limit that are saturated at that rate."""

    rate: float
    full: tuple[str, ...]


def channel_bound(host: Host, shape: Shape, most_channels: int) -> ChannelBound:
    """The bound for channels of a shape."""
    return _Tours(host, shape, most_channels).solve()


class _Tours:
    def __init__(self, host: Host, shape: Shape, most_channels: int) -> None:
        self.host, self.shape = host, shape
        machine = host.machine
        gpus, nets = range(len(machine.gpus)), range(len(machine.nets) if host.across else 0)
        self.gpus, count = gpus, len(gpus)
        self.nodes = [gpu.node for gpu in machine.gpus] + [net.node for net in machine.nets]
        pairs = permutations(gpus, 2) if shape == "ring" else combinations(gpus, 2)
        self.arcs = list(pairs) + [(count + net, gpu) for net in nets for gpu in gpus]
        if shape == "ring":
            self.arcs += [(gpu, count + net) for net in nets for gpu in gpus]
        self.arcs = [(a, b) for a, b in self.arcs if host.joined(shape, self.nodes[a], self.nodes[b])]
        self.total = len(self.arcs)
        self.most = float(machine.channel_rate) * most_channels
        self.names: list[str] = []
        self.upper: list[dict[int, float]] = []
        self.limits: list[float] = []
        self.equal: list[dict[int, float]] = []
        self._links()
        self._visits(count)

    def _links(self) -> None:
        host, links = self.host, self.host.machine.links
        rows: dict[int, dict[int, float]] = {}
        for arc, (src, dst) in enumerate(self.arcs):
            ways = [(src, dst), (dst, src)] if self.shape == "chain" else [(src, dst)]
            for one, other in ways:
                for link, cost in host.hop(self.shape, self.nodes[one], self.nodes[other]).items():
                    row = rows.setdefault(link, {})
                    row[arc] = row.get(arc, 0.0) + float(cost)
        for link, row in rows.items():
            wire = links[link]
            self._most(row, float(wire.rate), f"{wire.src.name} > {wire.dst.name} ({float(wire.rate):g} GB/s)")
        count = len(self.gpus)
        ports: dict[tuple[str, int], dict[int, float]] = {}
        for arc, (src, _) in enumerate(self.arcs):
            if src >= count:
                ports.setdefault(host.machine.nets[src - count].port, {})[arc] = 1.0
        for port, row in ports.items():
            rate = float(host.port_rates[port])
            self._most(row, rate, f"port {port[1]} of {port[0]} ({rate:g} GB/s)")

    def _most(self, row: dict[int, float], limit: float, name: str) -> None:
        self.upper.append(row)
        self.limits.append(limit)
        self.names.append(name)

    def _visits(self, count: int) -> None:
        """How often GPUs and NICs are entered and left."""
        across = self.host.across
        out = [[arc for arc, (src, _) in enumerate(self.arcs) if src == node] for node in range(len(self.nodes))]
        into = [[arc for arc, (_, dst) in enumerate(self.arcs) if dst == node] for node in range(len(self.nodes))]
        if self.shape == "ring":
            for node in range(len(self.nodes) if across else count):
                if node < count:
                    self.equal.append(dict.fromkeys(out[node], 1.0) | {self.total: -1.0})
                    self.equal.append(dict.fromkeys(into[node], 1.0) | {self.total: -1.0})
                else:
                    self.equal.append(dict.fromkeys(out[node], 1.0) | dict.fromkeys(into[node], -1.0))
        else:
            for node in range(count):
                self._most(dict.fromkeys([*out[node], *into[node]], 1.0) | {self.total: -2.0}, 0.0, "")
            within = [arc for arc, (src, _) in enumerate(self.arcs) if src < count]
            self.equal.append(dict.fromkeys(within, 1.0) | {self.total: -(count - 1.0)})
        if across:
            starts = [arc for arc, (src, _) in enumerate(self.arcs) if src >= count]
            self.equal.append(dict.fromkeys(starts, 1.0) | {self.total: -1.0})

    def solve(self) -> ChannelBound:
        for _ in range(1000):
            found = self._program()
            cuts = list(self._violated(found.x))
            if not cuts:
                rate = float(found.x[self.total])
                slack = np.asarray(found.slack)[: len(self.names)]
                full = [
                    name for name, left in zip(self.names, slack, strict=False) if name and left < 1e-7 * max(rate, 1)
                ]
                if rate >= self.most * (1 - 1e-9):
                    full = [f"what {round(self.most / float(self.host.machine.channel_rate))} channels carry"]
                return ChannelBound(rate * (1 + TOLERANCE), tuple(full))
            self.upper += cuts
            self.limits += [0.0] * len(cuts)
            self.names += [""] * len(cuts)
        raise MachineError(f"{self.host.machine.name}: the bound was not found in 1000 rounds of cuts")

    def _program(self) -> Any:
        objective = np.zeros(self.total + 1)
        objective[-1] = -1.0
        found = linprog(
            objective,
            A_ub=_matrix(self.upper, self.total + 1),
            b_ub=np.array(self.limits),
            A_eq=_matrix(self.equal, self.total + 1),
            b_eq=np.zeros(len(self.equal)),
            bounds=[(0, None)] * self.total + [(0, self.most)],
            method="highs",
        )
        if found.status != 0:
            raise MachineError(f"{self.host.machine.name}: the linear program of the bound failed: {found.message}")
        return found

    def _violated(self, x: np.ndarray) -> Iterable[dict[int, float]]:
        """Subtour constraints that x violates. Within a host the whole is a tour; across, NICs are one outside node."""
        count, rate = len(self.gpus), float(x[self.total])
        graph = networkx.DiGraph()
        outside = count
        graph.add_nodes_from(range(count + (1 if self.host.across else 0)))
        for arc, (src, dst) in enumerate(self.arcs):
            if x[arc] <= 1e-12:
                continue
            one, other = min(src, outside), min(dst, outside)
            for start, end in ((one, other), (other, one)) if self.shape == "chain" else ((one, other),):
                weight = graph.get_edge_data(start, end, {"capacity": 0.0})["capacity"]
                graph.add_edge(start, end, capacity=weight + float(x[arc]))
        root = outside if self.host.across else 0
        seen = set()
        for node in range(count):
            if node == root:
                continue
            value, (_, side) = networkx.minimum_cut(graph, root, node)
            inside = frozenset(member for member in side if member < count)
            if value < rate * (1 - 1e-7) - 1e-9 and inside not in seen and len(inside) < count + self.host.across:
                seen.add(inside)
                crossing = {
                    arc: -1.0
                    for arc, (src, dst) in enumerate(self.arcs)
                    if (dst in inside and src not in inside)
                    or (self.shape == "chain" and src in inside and dst not in inside)
                }
                yield crossing | {self.total: 1.0}


def _matrix(rows: list[dict[int, float]], width: int) -> coo_array:
    places = [(row, column, value) for row, entries in enumerate(rows) for column, value in entries.items()]
    row, column, value = (np.array(part) for part in zip(*places, strict=True))
    return coo_array((value, (row.astype(int), column.astype(int))), shape=(len(rows), width)).tocsr()
