"""TIMELY: the slope of the round-trip time shows that a queue grows before it is long.

    round trip below T_low   + delta
               between       + delta while it falls (five times as much after a while), else less by its slope
               above T_high  less by the excess

Mittal et al., TIMELY: RTT-based Congestion Control for the Datacenter (SIGCOMM 2015), algorithm 1, one step per round
trip. Constants as for 10 Gb/s; delta scales with the rate.
"""

from __future__ import annotations

import numpy as np

from syntony.synth.congestion.control import RoundTrips, Seen
from syntony.synth.congestion.queue_network import QueueNetwork

T_LOW, T_HIGH, T_MIN = 50e-6, 500e-6, 20e-6
WEIGHT, BETA = 0.875, 0.8
DELTA = 10e6 / 8  # bytes/s at 10 Gb/s
RATE_OF_PAPER = 1.25e9
PATIENCE, MORE = 5, 5


class Timely:
    """The rate computation engines."""

    def __init__(self, network: QueueNetwork) -> None:
        self._base = network.base
        self._line = network.line
        self._delta = DELTA * self._line / RATE_OF_PAPER
        self._trips = RoundTrips(network.flows, network.step)
        self._before = np.full(network.flows, self._base)
        self._slope = np.zeros(network.flows)
        self._calm = np.zeros(network.flows)
        self.rate = self._line.copy()

    def see(self, seen: Seen) -> None:
        """Algorithm 1, for flows with a completion."""
        trip = self._base + seen.wait
        due = self._trips.over(np.maximum(trip, T_MIN))
        slope = (1 - WEIGHT) * self._slope + WEIGHT * (trip - self._before)
        normal = slope / T_MIN
        low, high = trip < T_LOW, trip > T_HIGH
        calm = np.where(low | high | (normal > 0), 0, self._calm + 1)
        more = np.where(calm >= PATIENCE, MORE, 1)
        risen = self.rate + np.where(low, 1, more) * self._delta
        fallen = self.rate * (1 - BETA * np.where(high, 1 - T_HIGH / trip, np.clip(normal, 0.0, 1.0)))
        new = np.where(low | (~high & (normal <= 0)), risen, fallen)
        self.rate = np.where(due, np.clip(new, self._line / 1000, self._line), self.rate)
        self._slope, self._before = np.where(due, slope, self._slope), np.where(due, trip, self._before)
        self._calm = np.where(due, calm, self._calm)
