"""Swift: a window that keeps the delay at a target.

    delay below the target   + one packet per round trip
          above              less by beta times the excess, at most half, once per round trip

The target is a base, plus an amount per hop, plus a / sqrt(window) + b for small windows: many flows on one link cause
a longer queue, because their packets arrive in clusters. Kumar et al., Swift: Delay is Simple and Effective for
Congestion Control in the Datacenter (SIGCOMM 2020), sections 3.1 to 3.3 and 3.5. The paper gives the laws; not all of
its production constants are public, and those here are ours.
"""

from __future__ import annotations

import numpy as np

from syntony.synth.congestion.control import RoundTrips, Seen
from syntony.synth.congestion.queue_network import Floats, QueueNetwork

PACKET = 4096.0
BASE, HOP = 25e-6, 1e-6  # seconds of target delay: base, and per hop
BETA, MOST_CUT = 0.8, 0.5
LEAST_WINDOW, MOST_WINDOW = 0.1, 100.0  # the range of windows, in packets, over which the target varies,
RANGE = 4 * BASE  # and by how much at most


def target(window: Floats, hops: int) -> Floats:
    """Target delay in seconds of flows with such windows (packets), including propagation."""
    slope = RANGE / (LEAST_WINDOW**-0.5 - MOST_WINDOW**-0.5)
    more = slope * (np.maximum(window, 1e-6) ** -0.5 - MOST_WINDOW**-0.5)
    aim: Floats = BASE + HOP * hops + np.clip(more, 0.0, RANGE)
    return aim


class Swift:
    """The senders' windows, in packets."""

    def __init__(self, network: QueueNetwork) -> None:
        self._step, self._base, self._hops = network.step, network.base, network.hops
        self._line = network.line
        self._trips = RoundTrips(network.flows, network.step)
        self._window = self._line * network.base / PACKET
        self.rate = self._line.copy()

    def see(self, seen: Seen) -> None:
        """Algorithm 1: an increase with every acknowledgement, a decrease once per round trip."""
        delay = self._base + seen.wait
        aim = target(self._window, self._hops)
        below = delay < aim
        due = self._trips.over(np.where(below, np.inf, delay)) & ~below
        acknowledged = self.rate * self._step / PACKET
        risen = self._window + np.where(below, acknowledged / np.maximum(self._window, 1.0), 0.0)
        cut = np.minimum(BETA * (1 - aim / delay), MOST_CUT)
        most = self._line * np.maximum(delay, self._base) / PACKET
        self._window = np.clip(np.where(due, self._window * (1 - cut), risen), 0.001, most)
        self.rate = self._window * PACKET / delay
