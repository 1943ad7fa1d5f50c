"""What a sender observes of the network, and the interface of the laws that set its rate.

rate ─▶ queues along the path ─▶ receiver        the sender sees what its packets met half a round trip after they
  ▲                                 │            arrived
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
    """Observations per flow, over all of its paths.

    mark  the part of its packets that were marked (ECN)
    wait  seconds that a packet waited in queues on the slowest path
    load  of the fullest link, as in HPCC: bytes in the queue and bytes carried, over its capacity in a round trip
    """

    mark: Floats
    wait: Floats
    load: Floats


class Control(Protocol):
    """Rates of all flows of a network under one law; `rate` begins at line rate."""

    rate: Floats

    def see(self, seen: Seen) -> None:
        """Called once per step: updates `rate` from new observations."""


class LineRate:
    """Always sends at the rate of the first link: RDMA on a lossless network without any control."""

    def __init__(self, network: QueueNetwork) -> None:
        self.rate = network.line

    def see(self, seen: Seen) -> None:
        """Ignores all observations."""


class RoundTrips:
    """Tells whose round trip is over, for laws that act once per round trip."""

    def __init__(self, flows: int, step: float) -> None:
        self._step = step
        self._since = np.zeros(flows)

    def over(self, seconds: Floats) -> NDArray[np.bool_]:
        """Advances by a step; the flows for which this much time has passed since it was last true for them."""
        self._since += self._step
        due: NDArray[np.bool_] = self._since >= seconds * (1 - 1e-9)
        self._since[due] = 0.0
        return due
