"""Incast: many ranks send to one at once, and an uninvolved rank (the victim) sends over the same wires.

n-1 ─┐
n-2 ─┼─▶ leaf ════▶ spine ════▶ leaf ─▶ 0       the senders: the last ranks, each at line rate; they fill 0's link
..  ─┤                           └────▶ 1       the victim: the rank before them sends to rank 1, whose link is idle
 v  ─┘
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syntony.base.command import UserError
from syntony.synth.congestion.queue_network import QueueNetwork
from syntony.synth.congestion.simulate import LAWS, History, simulate
from syntony.synth.simulation.flows import Flows, PathPolicy, Paths, simulate_flows
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.paths import PathFinder
from syntony.topologies.topology import Topology


@dataclass(frozen=True)
class Result:
    """The effect of a law on the incast, in the second half of the time; seconds, bytes, bytes/s.

    share      rate of arrival at the receiver, over its link's bandwidth
    evenness   the least rate of a sender over the greatest
    wait       in queues: mean and 99th percentile over the senders
    peak       the longest queue of the whole time, including the first burst
    paused     the part of the time for which the most paused link was paused
    victim     the victim's rate
    early      the most bytes of one flow that arrived ahead of ones sent before them
    """

    share: float
    evenness: float
    wait: float
    wait_99: float
    peak: float
    paused: float
    victim: float
    early: float

    @staticmethod
    def of(history: History, bandwidth: float) -> Result:
        """The last flow is the victim's."""
        half = history.settled()
        mean = history.arrived[half].mean(axis=0)
        wait = history.wait[half, :-1]
        return Result(
            float(mean[:-1].sum() / bandwidth),
            float(mean[:-1].min() / mean[:-1].max()),
            float(wait.mean()),
            float(np.quantile(wait, 0.99)),
            float(history.queue.max()),
            float(history.paused[half].mean(axis=0).max()),
            float(mean[-1]),
            float(history.early[half].max()),
        )


@dataclass(frozen=True, eq=False)
class Incast:
    """`senders` flows to rank 0, then the victim's, with their paths."""

    topology: Topology
    paths: Paths
    senders: int

    @staticmethod
    def make(topology: Topology, senders: int, choice: Choice) -> Incast:
        """Raises UserError if there are more senders than ranks, or a path is missing."""
        if topology.ranks < senders + 3:
            raise UserError(
                f"{senders} senders, a receiver, a victim and whom it sends to are {senders + 3} ranks; "
                f"{topology.name} has {topology.ranks}"
            )
        src = topology.ranks - 1 - np.arange(senders + 1)
        dst = np.r_[np.zeros(senders, np.int64), 1]
        nobody = np.zeros(senders + 1, np.int64)
        return Incast(topology, choice.place(PathFinder(topology), src, dst, nobody, nobody), senders)

    @property
    def bandwidth(self) -> float:
        """Bandwidth of the receiver's link."""
        return float(self.topology.links[self.paths.links(0)[-1]].bandwidth)

    def fair(self) -> float:
        """The victim's rate under max-min fair sharing, without head-of-line blocking."""
        capacity = [float(link.bandwidth) for link in self.topology.links]
        flows = Flows.make(self.paths, capacity, 1e12, policy=PathPolicy.spray)
        found = simulate_flows(flows, timeline=True)
        last = self.paths.links(len(self.paths.path_offset) - 2)[-1]
        return float(found.rate[found.link == last][0])

    def under(self, law: str, seconds: float, lossless: bool = True) -> Result:
        """Simulates this many seconds with every sender obeying the law."""
        network = QueueNetwork.of(self.topology, self.paths, lossless)
        return Result.of(simulate(network, LAWS[law], seconds), self.bandwidth)
