"""Checks NCCL's graph files for their machine: `syntony verify` and `syntony simulate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syntony.base.command import UserError
from syntony.base.wording import counted
from syntony.synth.checker import Verdict
from syntony.synth.nccl.channels import Host
from syntony.synth.nccl.graph_file import RING, TREE, Graph, channels_on, fault_of, read_graphs
from syntony.synth.nccl.machine.hosts import host_named
from syntony.synth.nccl.machine.machine import MachineError
from syntony.synth.nccl.packing.bound import channel_bound
from syntony.synth.nccl.packing.packing import MOST_CHANNELS
from syntony.synth.nccl.report import allowed, busiest


def verify_graphs(path: Path, topology: str | None) -> Verdict:
    """Valid, or the first fault of a graph file. Without a machine, only the file itself is checked.

    With one: the devices exist, every channel of a ring or tree visits every GPU once, and the given speeds are within
    the rates of links and ports. Raises UserError if the file cannot be read.
    """
    graphs = read_graphs(path)
    if fault := fault_of(graphs, str(path)):
        return Verdict(valid=False, fault=fault)
    if topology is None:
        return Verdict(valid=True)
    host = host_named(topology, across=_across(graphs))
    for graph in graphs:
        if graph.id not in (RING, TREE):
            continue
        try:
            chosen = channels_on(graph, host.machine, str(path))
        except MachineError as error:
            return Verdict(valid=False, fault=str(error))
        if fault := host.fault(chosen):
            return Verdict(valid=False, fault=f"{path}:{graph.line}: {graph.name}: {fault}")
    return Verdict(valid=True)


@dataclass(frozen=True)
class Simulated:
    """The rate of a ring or a tree of a file; GB/s, seconds for an all_reduce of `size` bytes without latencies."""

    name: str
    channels: int
    written: float
    busbw: float
    bound: float
    size: int
    ranks: int
    busiest: tuple[str, ...]

    @property
    def seconds(self) -> float:
        part = 2 * (self.ranks - 1) / self.ranks
        return self.size * part / (self.busbw * 1e9)

    def to_dict(self) -> dict[str, Any]:
        return {
            "graph": self.name,
            "channels": self.channels,
            "written": self.written,
            "busbw": self.busbw,
            "bound": self.bound,
            "fraction": self.busbw / self.bound,
            "seconds": self.seconds,
            "busiest": list(self.busiest),
        }

    def lines(self) -> list[str]:
        return [
            f"{self.name}: {counted(self.channels, 'channel')}, {self.busbw:g} GB/s ({self.written:g} written), "
            f"{self.busbw / self.bound:.1%} of the bound {self.bound:.6g} GB/s",
            f"  all_reduce of {self.size} bytes: {self.seconds:.3g} s, without latencies",
            f"  busiest  {', '.join(self.busiest)}",
        ]


def simulate_graphs(path: Path, topology: str, size: int) -> list[Simulated]:
    """The rates that links allow the file's ring and tree, whatever speeds it gives. Raises UserError."""
    graphs = read_graphs(path)
    if fault := fault_of(graphs, str(path)):
        raise UserError(fault)
    host = host_named(topology, across=_across(graphs))
    return [_simulated(host, graph, path, size) for graph in graphs if graph.id in (RING, TREE)]


def _simulated(host: Host, graph: Graph, path: Path, size: int) -> Simulated:
    chosen = channels_on(graph, host.machine, str(path))
    bound = channel_bound(host, chosen.shape, max(MOST_CHANNELS, len(chosen.channels)))
    speed = host.speed(chosen.shape, chosen.channels)
    rate = min(allowed(host, chosen), float(speed * len(chosen.channels)))
    ranks = len(host.machine.gpus)
    links = tuple(busiest(host, type(chosen)(chosen.shape, chosen.channels, speed)))
    return Simulated(graph.name, len(chosen.channels), float(chosen.total), rate, bound.rate, size, ranks, links)


def _across(graphs: tuple[Graph, ...]) -> bool:
    return any(channel.nets for graph in graphs for channel in graph.channels)
