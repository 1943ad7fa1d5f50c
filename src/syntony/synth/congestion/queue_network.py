"""Queues in front of links, and pauses when they grow too long.

    sender ─▶ [queue] ═link═▶ switch [queue] ═link═▶ switch [queue] ═link═▶ receiver
                                │  more than xoff bytes that came in through this link wait in the switch:
              ◀──── pause ──────┘  the link stops, whatever flow is next on it (head-of-line blocking)

Bytes are a fluid. In every step each link carries as much of its queue as its capacity allows, each flow in proportion
to its part of the queue, and a step later these bytes are in front of the next link. If a priority is lossless (PFC,
IEEE 802.1Qbb), a switch counts the bytes that came in through each link and still wait in it. Above `xoff` it pauses
the link; below `xoff` less `xon` it resumes it. Nothing is dropped.

A sprayed flow has several paths, each with an equal part of its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony.synth.simulation.flows import Paths
from syntony.topologies.topology import Topology

Floats = NDArray[np.float64]
PAUSE_AT = 40e-6  # queueing in a switch at which it pauses a link, in seconds of the link's capacity
XON = 0.1  # of that: a pause ends this far below


@dataclass(frozen=True, eq=False)
class QueueNetwork:
    """Paths of flows over the links of a topology that they use.

    path      int64 (P, H)    the links of path p, in order; short paths end with links that take no time
    owner     int64 (P,)      the flow of the path; its paths share its rate evenly
    capacity  float64 (L,)    bytes/s; the last one, of the link that takes no time, is infinite
    link      int64 (L - 1,)  the links' ids in the topology
    step      seconds that bytes take from one link to the next: the mean latency of a hop
    lossless  whether switches pause links
    """

    path: NDArray[np.int64]
    owner: NDArray[np.int64]
    capacity: Floats
    link: NDArray[np.int64]
    step: float
    lossless: bool = True

    @property
    def flows(self) -> int:
        """The number of flows."""
        return int(self.owner.max()) + 1

    @property
    def hops(self) -> int:
        """Links of the longest path."""
        return int(self.path.shape[1])

    @property
    def base(self) -> float:
        """Round-trip time in seconds without queues."""
        return 2 * self.hops * self.step

    @property
    def line(self) -> Floats:
        """Per flow the bytes/s of its first link."""
        found = np.zeros(self.flows)
        found[self.owner] = self.capacity[self.path[:, 0]]
        return found

    @staticmethod
    def of(topology: Topology, paths: Paths, lossless: bool = True) -> QueueNetwork:
        """A flow per set of paths; all paths of a set are used."""
        ways = [paths.links(path) for path in range(len(paths.path_offset) - 1)]
        link, row = np.unique([link for way in ways for link in way], return_inverse=True)
        hops = max(map(len, ways))
        path = np.full((len(ways), hops), len(link))
        path[np.arange(hops) < np.asarray([[len(way)] for way in ways])] = row
        owner = np.repeat(np.arange(len(paths.set_offset) - 1), np.diff(paths.set_offset))
        capacity = np.asarray([float(topology.links[number].bandwidth) for number in link] + [np.inf])
        longest = max(sum(topology.links[number].alpha for number in way) for way in ways)
        return QueueNetwork(path, owner, capacity, link.astype(np.int64), max(longest / hops, 1e-7), lossless)


class Moving:
    """Bytes in flight in a network.

    queue    float64 (L,)   bytes in front of each link
    carried  float64 (L,)   bytes that each link carried in the last step
    paused   bool (L,)      whether each link is paused
    arrived  float64 (P,)   bytes that reached the end of each path in the last step
    """

    def __init__(self, network: QueueNetwork) -> None:
        self._fabric = network
        links = len(network.capacity)
        self._waiting = np.zeros(network.path.shape)
        self._coming = np.zeros(network.path.shape)
        self._room = network.capacity * network.step
        self._before = np.hstack([np.full((len(network.path), 1), links - 1), network.path[:, :-1]])
        self._limit = PAUSE_AT * network.capacity
        self._paths = np.bincount(network.owner)[network.owner]
        self.queue = np.zeros(links)
        self.carried = np.zeros(links)
        self.paused = np.zeros(links, bool)
        self.arrived = np.zeros(len(network.path))

    def step(self, rate: Floats) -> None:
        """One step in which flow f sends rate[f] bytes/s. A sender holds back what its link does not take."""
        path, links = self._fabric.path, len(self._fabric.capacity)
        offered = rate[self._fabric.owner] / self._paths * self._fabric.step
        self._coming[:, 0] = np.maximum(np.minimum(offered, 2 * self._room[path[:, 0]] - self._waiting[:, 0]), 0.0)
        self._waiting += self._coming
        load = np.bincount(path.ravel(), self._waiting.ravel(), links)
        self.carried = np.where(self.paused, 0.0, np.minimum(load, self._room))
        part = np.divide(self.carried, load, out=np.zeros(links), where=load > 0)
        out = self._waiting * part[path]
        self._waiting -= out
        self._coming[:, 1:] = out[:, :-1]
        self.arrived = out[:, -1]
        self.queue = load - self.carried
        self.queue[-1] = 0.0
        if self._fabric.lossless:
            held = np.bincount(self._before.ravel(), self._waiting.ravel(), links)
            held[-1] = 0.0
            self.paused = held > np.where(self.paused, (1 - XON) * self._limit, self._limit)
