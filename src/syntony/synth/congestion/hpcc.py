"""HPCC: switches report how full their links are, so a sender knows at once by how much it sends too much.

    load of a link    U = bytes in its queue / (capacity x round trip) + bytes/s that it carries / capacity
    window            W = W_ref eta / U + W_AI          W_ref: the window one round trip ago

In up to `STAGES` round trips with U below eta, only W_AI is added. Li et al., HPCC: High Precision Congestion Control
(SIGCOMM 2019), algorithm 1. N flows with small W_AI settle at W = W eta / U + W_AI, without a queue:

    U = eta + N W_AI / (capacity x round trip)

W_AI is an assumption. The authors' simulator adds a rate, 40 Mb/s at 100 Gb/s (simulation/run.py of their repository),
which is 65 bytes in the round trip of 13 us that it states.
"""

from __future__ import annotations

import numpy as np

from syntony.synth.congestion.control import RoundTrips, Seen
from syntony.synth.congestion.queue_network import QueueNetwork

ETA = 0.95
STAGES = 5
W_AI = 80.0  # bytes


class Hpcc:
    """The senders' windows, in bytes."""

    def __init__(self, network: QueueNetwork) -> None:
        self._base = network.base
        self._line = network.line
        self._trips = RoundTrips(network.flows, network.step)
        self._window = self._line * self._base
        self._reference = self._window.copy()
        self._load = np.ones(network.flows)
        self._stage = np.zeros(network.flows)
        self._weight = network.step / network.base
        self.rate = self._line.copy()

    def see(self, seen: Seen) -> None:
        """Algorithm 1: U is averaged over a round trip; the reference window is updated once per round trip."""
        self._load += self._weight * (seen.load - self._load)
        full = (self._load >= ETA) | (self._stage >= STAGES)
        new = np.where(full, self._reference * ETA / self._load, self._reference) + W_AI
        new = np.clip(new, W_AI, self._line * self._base)
        due = self._trips.over(np.full(len(new), self._base))
        self._stage = np.where(due, np.where(full, 0, self._stage + 1), self._stage)
        self._reference = np.where(due, new, self._reference)
        self._window = new
        self.rate = self._window / self._base
