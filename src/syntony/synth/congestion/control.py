"""What a sender sees of the network, and the laws by which it sets its rate.

rate ─▶ queues along the path ─▶ receiver        what the packets met on their way there is seen half a round trip
  ▲                                 │            after they arrived
  └── marks, round trip, load ◀─────┘
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from syntony.synth.congestion.queue_network import Floats, QueueNetwork


@dataclass(frozen=True, eq=False)
class Seen:
    """Per flow, over all of its paths.

    mark  the part of its packets that were marked (ECN)
    wait  seconds that a packet waited in queues on the slowest path
    load  the fullest link, as HPCC counts: bytes in the queue and bytes carried, over what it carries in a round trip
    """

    mark: Floats
    wait: Floats
    load: Floats


class Control(Protocol):
    """Rates of all flows of a network, all by the same law; `rate` begins at line rate."""

    rate: Floats

    def see(self, seen: Seen) -> None:
        """A step later: what has become known sets `rate` anew."""


class LineRate:
    """Sends as fast as the first link goes, whatever happens: RDMA on a lossless network without any control."""

    def __init__(self, network: QueueNetwork) -> None:
        self.rate = network.line

    def see(self, seen: Seen) -> None:
        """Nothing is done about it."""


class RoundTrips:
    """Whose round trip is over: laws that act once in one ask this."""

    def __init__(self, flows: int, step: float) -> None:
        self._step = step
        self._since = np.zeros(flows)

    def over(self, seconds: Floats) -> NDArray[np.bool_]:
        """The flows for which so much time has gone since it was true for them; a step goes by."""
        self._since += self._step
        due: NDArray[np.bool_] = self._since >= seconds * (1 - 1e-9)
        self._since[due] = 0.0
        return due
