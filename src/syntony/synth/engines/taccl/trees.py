"""Quick routes: trees grown edge by edge, always by the cheapest edge.

The cost of an edge is the time at which its end has the chunk, plus `balance` times the load of its busiest link so
far, in seconds. balance = 0 grows trees of shortest paths; with a larger one, trees avoid links that others use. All
images of an edge under the symmetry are taken with it. The exact search starts from these trees, and they are used if
it has no time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntony.synth.engines.taccl.task import Task

BALANCES = (0.0, 0.5, 2.0, 50.0)


def grown(task: Task) -> NDArray[np.bool_]:
    """(C, E): the best of the routes for several balances, by `relaxed_time`."""
    return min((_grown(task, balance) for balance in BALANCES), key=lambda chosen: relaxed_time(task, chosen))


def relaxed_time(task: Task, chosen: NDArray[np.bool_]) -> float:
    """Seconds that the routes take at least: the busiest link's, or the longest path's without waiting for links."""
    busy = np.zeros(len(task.logical.network.topology.links))
    np.add.at(busy, task.links, (task.bytes @ chosen)[:, None] * task.pace)
    longest = 0.0
    for chunk in task.representatives.tolist():
        longest = max(longest, max(arrivals(task, chosen, chunk).values(), default=0.0))
    return max(longest, float(busy.max(initial=0.0)))


def arrivals(task: Task, chosen: NDArray[np.bool_], chunk: int) -> dict[int, float]:
    """When each rank on the chunk's routes has it, without waiting for links."""
    src, dst = task.logical.ends
    at = {int(task.home[chunk]): 0.0}
    edges = np.flatnonzero(chosen[chunk]).tolist()
    while edges:
        ready = [edge for edge in edges if int(src[edge]) in at]
        assert ready, "chosen edges hang together"
        for edge in ready:
            at[int(dst[edge])] = at[int(src[edge])] + float(task.latency[chunk, edge])
        edges = [edge for edge in edges if edge not in ready]
    return at


def _grown(task: Task, balance: float) -> NDArray[np.bool_]:
    src, dst = task.logical.ends
    chosen = np.zeros(task.usable.shape, bool)
    load = np.zeros(len(task.logical.network.topology.links))
    for chunk in task.representatives.tolist():
        since = np.full(task.collective.ranks, np.inf)
        since[task.home[chunk]] = 0.0
        came = np.full(task.collective.ranks, -1)
        missing = set(task.wanted[chunk])
        single = len(missing) == 1
        usable = np.flatnonzero(task.usable[chunk])
        own = task.bytes[chunk] * task.pace[usable]
        while missing:
            arrival = since[src[usable]] + task.latency[chunk, usable]
            cost = arrival + balance * (load[task.links[usable]] + own).max(axis=1)
            cost[np.isfinite(since[dst[usable]])] = np.inf
            best = int(np.argmin(cost))
            edge = int(usable[best])
            since[dst[edge]], came[dst[edge]] = arrival[best], edge
            missing.discard(int(dst[edge]))
            if not single:
                _take(task, chunk, edge, chosen, load)
        for end in task.wanted[chunk] if single else ():
            while end != task.home[chunk]:
                edge = int(came[end])
                _take(task, chunk, edge, chosen, load)
                end = int(src[edge])
    return chosen


def _take(task: Task, chunk: int, edge: int, chosen: NDArray[np.bool_], load: NDArray[np.float64]) -> None:
    """The edge for the chunk, and all images of both."""
    chosen[task.chunk_to[:, chunk], task.edge_to[:, edge]] = True
    images = task.edge_to[:, edge]
    np.add.at(load, task.links[images], task.bytes[chunk] * task.pace[images])
