"""Store-and-forward: every switch receives a whole message before it starts to forward it.

    cut-through          link 0  [====]              store-and-forward    link 0  [====]
    (simulation/flows.py)     link 1  [====]                                   link 1       ·[====]
                               ·a0·a1·▶ arrived                                  ·a0·     ·a1·▶ arrived

Each hop of a flow becomes a separate flow, which starts when the previous hop has arrived; switches have unlimited
memory. Hops of one lane keep its order on every link that they share. Messages cut into slices are forwarded slice by
slice, as packets are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony.synth.simulation.flows import Flows, Paths, cut

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HopFlows:
    """Flows hop by hop.

    first, last  int64 (n,)  the first and the last hop of every flow
    """

    flows: Flows
    first: Integers
    last: Integers

    @property
    def owner(self) -> Integers:
        """The flow of each hop."""
        return np.repeat(np.arange(len(self.first)), self.last - self.first + 1)


def hop_by_hop(flows: Flows, alphas: NDArray[np.float64]) -> HopFlows:
    """The same flows through switches that store and forward; `alphas` are seconds of every link.

    A flow's latency is divided in proportion to its links' alphas. Raises ValueError if a set has several paths: the
    path of a flow must be known in advance.
    """
    paths = flows.paths
    if np.any(np.diff(paths.set_offset) != 1):
        raise ValueError("a set has several paths; flows go hop by hop over one path")
    start = paths.path_offset[flows.set]
    hops = np.maximum(1, np.diff(paths.path_offset)[flows.set])
    last = np.cumsum(hops) - 1
    first = last - hops + 1
    count = int(hops.sum())
    owner = np.repeat(np.arange(len(flows)), hops)
    hop = np.arange(count) - first[owner]

    # A path per entry of the old ones, and one without links.
    entries = len(paths.link)
    entry = np.where(np.diff(paths.path_offset)[flows.set][owner] > 0, start[owner] + hop, entries)
    sets = Paths(np.arange(entries + 2), np.r_[np.arange(entries + 1), entries], paths.link, paths.weight)
    alpha = np.r_[alphas[paths.link], 0.0][entry]
    total = np.bincount(owner, alpha)[owner] if count else alpha
    part = np.divide(alpha, total, out=(np.arange(count) == last[owner]).astype(float), where=total > 0)

    waiter, awaited = _pairs(flows.after_offset, flows.after)
    later = np.flatnonzero(hop > 0)
    after = np.r_[first[waiter], later], np.r_[last[awaited], later - 1]
    waiter, awaited = _pairs(flows.after_left_offset, flows.after_left)
    same_way = (flows.set[waiter] == flows.set[awaited]) & (hops[waiter] > 1)
    each = hops[waiter[same_way]]
    along = np.repeat(np.flatnonzero(same_way), each)
    ahead = np.arange(len(along)) - np.repeat(np.cumsum(each) - each, each)
    after_left = (
        np.r_[first[waiter[~same_way]], first[waiter[along]] + ahead],
        np.r_[first[awaited[~same_way]], first[awaited[along]] + ahead],
    )
    after_offset, arrived = cut(*after, count)
    after_left_offset, left = cut(*after_left, count)
    return HopFlows(
        Flows(
            flows.bytes[owner],
            flows.latency[owner] * part,
            np.where(hop == 0, flows.release[owner], 0.0),
            after_offset,
            arrived,
            after_left_offset,
            left,
            entry,
            flows.policy[owner],
            flows.job[owner],
            sets,
            flows.capacity,
        ),
        first,
        last,
    )


def _pairs(offset: NDArray[np.signedinteger], column: NDArray[np.signedinteger]) -> tuple[Integers, Integers]:
    return np.repeat(np.arange(len(offset) - 1), np.diff(offset)), column.astype(np.int64)
