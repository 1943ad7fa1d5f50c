"""Simulation: the result of a simulator. A simulated time is a model's estimate, neither a bound nor a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.bounds.windows import with_windows
from syntony.synth.model.bound import Bounds
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.model.program import Program
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.utilization import LinkRates
from syntony.topologies.topology import Topology


class StuckError(UserError):
    """It can never finish: some transfer or instruction waits forever."""


@dataclass(frozen=True, eq=False)
class Messages:
    """The messages on the wires, columns of equal length M; seconds from the beginning.

    row      int64 (M,)    its transfer (of a Schedule) or sending instruction (of a Program)
    slice    int64 (M,)    its slice
    route    int64 (M,)    its route in `Simulation.routes`
    start    float64 (M,)  its first byte goes on the wire
    left     float64 (M,)  its last byte is on the wire
    arrival  float64 (M,)  it has arrived
    """

    row: NDArray[np.int64]
    slice: NDArray[np.int64]
    route: NDArray[np.int64]
    start: NDArray[np.float64]
    left: NDArray[np.float64]
    arrival: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Simulation:
    """The result of a simulator; seconds and bytes.

    routes    the links of every route in use; for a schedule simulated by representatives, only theirs
    busy      float64 (L,): seconds for which its bytes occupy each link at full bandwidth
    rates     rates of links over time, if requested
    bounds    those of the source, if it has any
    """

    source: Schedule | Program
    topology: Topology
    collective: Collective
    size: int
    seconds: float
    routes: Sequence[tuple[int, ...]]
    messages: Messages
    busy: NDArray[np.float64]
    rates: LinkRates | None = None
    bounds: Bounds | None = None

    @property
    def algbw(self) -> float:
        """Size per second, bytes/s; 0 if nothing takes time."""
        return self.size / self.seconds if self.seconds else 0.0

    @property
    def busbw(self) -> float:
        """algbw times the kind's factor, as nccl-tests define it, bytes/s."""
        return self.algbw * float(self.collective.bus_factor)

    def utilization(self, bins: int) -> NDArray[np.float64]:
        """(links, bins): the mean share of its bandwidth that each link uses in each of `bins` equal parts of the time;
        zeros if no rates were kept."""
        capacity = np.asarray([float(link.bandwidth) for link in self.topology.links])
        rates = self.rates or LinkRates(np.zeros(0), np.zeros(0, np.int64), np.zeros(0))
        return rates.means(self.seconds, bins, capacity)

    @cached_property
    def bound_seconds(self) -> float:
        """The lower bound on the time; computed on first use if the source has no bounds."""
        bounds = self.bounds or bounds_of(self.topology, self.collective)
        if not bounds.windows:
            bounds = with_windows(Network(self.topology, self.collective), bounds)
        return bounds.seconds(self.size)

    @property
    def fraction(self) -> float:
        """bound_seconds / seconds: 1 is as fast as the bounds allow."""
        return self.bound_seconds / self.seconds if self.seconds else 1.0


def busy_seconds(
    topology: Topology, routes: Sequence[tuple[int, ...]], carried: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Per link, the seconds that it needs for `carried[r]` bytes on every route r."""
    hops = [len(route) for route in routes]
    links = np.asarray([link for route in routes for link in route], np.int64)
    bandwidth = np.asarray([float(link.bandwidth) for link in topology.links])
    seconds: NDArray[np.float64] = np.bincount(links, np.repeat(carried, hops), minlength=len(bandwidth)) / bandwidth
    return seconds
