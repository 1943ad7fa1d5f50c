"""Runs flows of one law through a network and records the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony.synth.congestion.control import Control, LineRate, Seen
from syntony.synth.congestion.dcqcn import Dcqcn, marks
from syntony.synth.congestion.hpcc import Hpcc
from syntony.synth.congestion.queue_network import Floats, Moving, QueueNetwork
from syntony.synth.congestion.swift import Swift
from syntony.synth.congestion.timely import Timely

LAWS: dict[str, Callable[[QueueNetwork], Control]] = {
    "none": LineRate,
    "dcqcn": Dcqcn,
    "timely": Timely,
    "swift": Swift,
    "hpcc": Hpcc,
}


@dataclass(frozen=True, eq=False)
class History:
    """Columns, one row per step of the network.

    arrived   float64 (S, F)  bytes/s that arrive
    queue     float64 (S, L)  bytes in front of each link
    paused    bool (S, L)     whether each link is paused
    wait      float64 (S, F)  seconds in queues on the slowest path
    early     float64 (S, F)  bytes that arrive before others that were sent ahead of them on a slower path
    """

    network: QueueNetwork
    arrived: Floats
    queue: Floats
    paused: NDArray[np.bool_]
    wait: Floats
    early: Floats

    def settled(self) -> slice:
        """The rows of the second half of the time."""
        return slice(len(self.arrived) // 2, None)


def simulate(
    network: QueueNetwork, law: Callable[[QueueNetwork], Control], seconds: float, first: Floats | None = None
) -> History:
    """Endless flows, all from time 0. `first`: their initial rates, bytes/s, instead of line rate."""
    steps = max(round(seconds / network.step), 2)
    flows, owner, links = network.flows, network.owner, len(network.capacity)
    control, moving = law(network), Moving(network)
    if first is not None:
        control.rate = first.copy()
    history = History(
        network,
        np.zeros((steps, flows)),
        np.zeros((steps, links)),
        np.zeros((steps, links), bool),
        np.zeros((steps, flows)),
        np.zeros((steps, flows)),
    )
    late: list[Seen] = []
    finite = np.isfinite(network.capacity)
    capacity = np.where(finite, network.capacity, 1.0)
    heads = np.flatnonzero(np.diff(owner, prepend=-1))
    for step in range(steps):
        moving.step(control.rate)
        seconds_of = np.where(finite, moving.queue / capacity, 0.0)
        # A sender's own queue does not count as part of the network.
        waits = seconds_of[network.path[:, 1:]].sum(axis=1)
        load = np.where(finite, seconds_of / network.base + moving.carried / (capacity * network.step), 0.0)
        unmarked = np.log1p(-np.minimum(marks(moving.queue, network.capacity), 1 - 1e-9))
        slowest, fastest = np.maximum.reduceat(waits, heads), np.minimum.reduceat(waits, heads)
        kept = np.add.reduceat(np.exp(unmarked[network.path[:, 1:]].sum(axis=1)), heads)
        late.append(
            Seen(
                1 - kept / np.diff(heads, append=len(owner)),
                slowest,
                np.maximum.reduceat(load[network.path[:, 1:]].max(axis=1), heads),
            )
        )
        if len(late) > network.hops:
            control.see(late.pop(0))
        history.arrived[step] = np.bincount(owner, moving.arrived, flows) / network.step
        history.queue[step], history.paused[step] = moving.queue, moving.paused
        history.wait[step] = slowest
        history.early[step] = history.arrived[step] * (slowest - fastest)
    return history
