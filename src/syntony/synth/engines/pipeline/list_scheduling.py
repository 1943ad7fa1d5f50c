"""List scheduling: orders the transfers of a schedule by urgency.

    link 0   ready: A (2 hops to go), B (5 to go)   ──▶  B first; A when B has left
    link 1   busy until 3.1                          ──▶  then the most urgent of those that are ready by then

No link is idle while a transfer is ready for it. Of several ready transfers, the one with the longest remaining path
goes first (critical path first: Graham, "Bounds on multiprocessing timing anomalies", 1969). The times at which
transfers begin, for one size, become their steps, which are the order of lanes for every size.

Where chunks are slices of larger ones, each slice may be due a little later than the one before: as much later as the
busiest link is busy with a slice. So an all_reduce copies its first slices while it still sums the last.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from heapq import heappop, heappush

import numpy as np

from syntony.base.rows import pieces
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.simulation.moves import moves_of, waits_of
from syntony.synth.symmetry.groups import expand


def by_urgency(schedule: Schedule, size: int, stages: int = 1) -> Schedule:
    """The whole schedule with steps by list scheduling for `size` bytes; its bounds and proof stay.

    stages   every so many chunks follow each other: each is due a little later than the one before
    """
    whole = expand(schedule)
    if not len(whole.transfers):
        return whole
    plan = _Plan(whole, size, stages)
    start = plan.starts()
    # A transfer that waits begins later; if neither alpha nor bytes take time, its position in the chain decides.
    step = np.unique(np.stack([start, plan.depth], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    order = np.argsort(step, kind="stable")
    moved = whole.transfers
    hops = np.diff(moved.offset)[order]
    return replace(
        whole,
        transfers=Transfers(
            moved.value[order],
            moved.result[order],
            moved.src[order],
            moved.dst[order],
            step[order],
            np.r_[0, np.cumsum(hops)],
            pieces(moved.link, moved.offset[:-1][order], hops),
        ),
        rounds=np.zeros(0, np.int32),
    )


class _Plan:
    """Nodes are the transfers, then the sums of what they deliver; a node waits for others to arrive."""

    def __init__(self, schedule: Schedule, size: int, stages: int) -> None:
        moves = moves_of(schedule)
        waiter, awaited, sums = waits_of(moves, schedule.collective)
        count = len(moves) + sums
        self._transfers = len(moves)
        self._routes = [schedule.transfers.route(row) for row in range(len(moves))]
        bandwidth = [float(link.bandwidth) for link in schedule.topology.links]
        shares = [float(size * schedule.collective.share(chunk)) for chunk in range(len(schedule.collective.chunks))]
        chunk = schedule.values.chunk[schedule.transfers.value].tolist()
        self._seconds = [
            shares[held] / min((bandwidth[link] for link in route), default=np.inf)
            for held, route in zip(chunk, self._routes, strict=True)
        ] + [0.0] * sums
        self._latency = [*moves.latency[moves.path].tolist(), *([0.0] * sums)]
        self._next: list[list[int]] = [[] for _ in range(count)]
        self._waiting = [0] * count
        for later, earlier in zip(waiter.tolist(), awaited.tolist(), strict=True):
            self._next[earlier].append(later)
            self._waiting[later] += 1
        order = self._in_order()
        depth = [0] * count
        self._urgency = [0.0] * count
        for node in order:
            for later in self._next[node]:
                depth[later] = max(depth[later], depth[node] + 1)
        for node in reversed(order):
            after = max((self._urgency[later] for later in self._next[node]), default=0.0)
            self._urgency[node] = self._seconds[node] + self._latency[node] + after
        if stages > 1:
            busy = np.zeros(len(bandwidth))
            for route, seconds in zip(self._routes, self._seconds, strict=False):
                busy[list(route)] += seconds
            period = float(busy.max()) / stages
            for node, held in enumerate(chunk):
                self._urgency[node] -= held % stages * period
        self.depth = np.asarray(depth[: self._transfers])

    def _in_order(self) -> list[int]:
        waiting = self._waiting.copy()
        order = [node for node, number in enumerate(waiting) if not number]
        for node in order:
            for later in self._next[node]:
                waiting[later] -= 1
                if not waiting[later]:
                    order.append(later)
        return order

    def starts(self) -> np.ndarray:
        """Seconds at which every transfer begins."""
        start = np.zeros(self._transfers)
        busy: set[int] = set()
        queues: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)  # by link: what is ready, by urgency
        waiting = self._waiting.copy()
        events: list[tuple[float, int, int]] = []  # when, 0 left or 1 arrived, node

        def look(link: int, now: float) -> None:
            while link not in busy and queues[link]:
                urgency, node = heappop(queues[link])
                blocked = next((other for other in self._routes[node] if other in busy), None)
                if blocked is not None:
                    heappush(queues[blocked], (urgency, node))
                    continue
                busy.update(self._routes[node])
                start[node] = now
                heappush(events, (now + self._seconds[node], 0, node))

        def ready(node: int, now: float) -> None:
            if node >= self._transfers or not self._routes[node]:  # a sum, or an operand that its rank holds
                if node < self._transfers:
                    start[node] = now
                heappush(events, (now, 1, node))
                return
            heappush(queues[self._routes[node][0]], (-self._urgency[node], node))
            fresh.add(self._routes[node][0])

        fresh: set[int] = set()
        for node, number in enumerate(self._waiting):
            if not number:
                ready(node, 0.0)
        now = 0.0
        while events or fresh:
            for link in sorted(fresh):
                look(link, now)
            fresh.clear()
            if not events:
                break
            now = events[0][0]
            while events and events[0][0] == now:  # all of one moment, before anything begins
                _, arrived, node = heappop(events)
                if not arrived:
                    busy.difference_update(self._routes[node])
                    fresh.update(self._routes[node])
                    heappush(events, (now + self._latency[node], 1, node))
                    continue
                for later in self._next[node]:
                    waiting[later] -= 1
                    if not waiting[later]:
                        ready(later, now)
        return start
