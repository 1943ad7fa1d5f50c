"""Engine `greedy`: schedules for any connected network; it always adds the transfer that would arrive first.

Every link has a time from which it is free, every rank a time at which it gets each chunk. Of all (chunk, route) whose
source holds the chunk and whose destination still wants it, the one that would arrive first becomes a transfer, and its
links are busy until its last byte. This repeats until every rank has all its chunks:

    link 0 -> 1   [chunk 0][chunk 3 ]
    link 1 -> 2            [chunk 0 ][chunk 3]         time runs to the right
    link 0 -> 2   [chunk 3][chunk 0? no: 2 has it from 1 sooner]

So slow links carry each chunk once, and fast links spread it further. The idea is from Won et al., TACOS (MICRO'24),
who match links with chunks over time; here routes may cross switches, bandwidths may differ, and ties are broken by
rotation, not at random, so the result is deterministic.

For gather, scatter and all_to_all, each chunk first gets a path, one after another. A path is the cheapest one, where a
link costs its load so far, in seconds, plus the seconds that the chunk would add. Then every hop starts as soon as its
chunk has arrived and its links are free, first come, first served.

Reducing collectives are made in reverse (symmetry/reversal.py). No optimality is proven; the gap to the bound is given.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from syntony.synth.bounds.distance import latency
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines.engine import Budget, EngineError, OutOfTimeError
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.routes import Route, routes_of
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.symmetry.groups import fold
from syntony.synth.symmetry.reversal import in_owned_chunks, summed, summed_and_spread
from syntony.topologies.topology import Topology

ENGINE = "greedy"
PIPELINE_CHUNKS = 8
"""Number of chunks of a broadcast or reduce block, if the collective has only one."""


def run(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    """The engine; see the module docstring. Raises EngineError for steps or rounds, OutOfTimeError."""
    if budget.steps is not None or budget.rounds is not None:
        raise EngineError("engine greedy takes no --steps or --rounds; use --engine sccl")
    if collective.kind == "all_reduce":
        cut, gather = in_owned_chunks(collective)
        dual = _spread(topology.reversed(), gather, size, budget)
        schedule = summed_and_spread(dual, _spread(topology, gather, size, budget), cut)
    elif collective.combining:
        schedule = summed(_spread(topology.reversed(), _pipelined(collective.dual()), size, budget), topology)
    else:
        schedule = _spread(topology, _pipelined(collective), size, budget)
    return fold(replace(schedule, bounds=bounds_of(schedule.topology, schedule.collective, budget.for_bounds())))


def _pipelined(collective: Collective) -> Collective:
    """A broadcast of one chunk is cut, so that ranks forward the first piece while the next arrives."""
    if collective.kind != "broadcast" or len(collective.chunks) > 1:
        return collective
    chunks = ChunkTable(np.zeros(PIPELINE_CHUNKS, np.int32), np.full(PIPELINE_CHUNKS, collective.chunks.weight[0]))
    return replace(collective, chunks=chunks)


def _spread(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    """A collective without sums."""
    network = Network(topology, collective)
    latency(network)  # raises if a rank cannot be reached
    timetable = _Timetable(network, size, budget)
    if collective.kind in ("all_gather", "broadcast"):
        timetable.spread_to_all()
    else:
        timetable.send_each()
    return Schedule(
        topology,
        collective,
        ValueBuilder.of_chunks(collective).build(),
        Transfers.of(timetable.transfers()),
        engine=ENGINE,
    )


@dataclass(frozen=True)
class _Fixed:
    """A transfer with its time of departure."""

    start: float
    chunk: int
    route: Route


class _Timetable:
    """When links are free, when ranks hold chunks, and the transfers fixed so far."""

    def __init__(self, network: Network, size: int, budget: Budget) -> None:
        collective = network.collective
        self._collective, self._budget = collective, budget
        self._bytes: list[float] = collective.bytes_of_chunks(size).tolist()
        self._free = np.zeros(len(network.topology.links))
        self._rate = np.asarray([float(link.bandwidth) for link in network.topology.links])
        self._routes: list[list[Route]] = [[] for _ in range(collective.ranks)]
        for route in routes_of(network).routes:
            self._routes[route.src].append(route)
        # Per source: its routes' links, padded with the last one, and which are no padding; destinations; alphas;
        # seconds per byte.
        self._links = [_padded([route.links for route in routes]) for routes in self._routes]
        self._is_link = [
            np.arange(links.shape[1]) < np.asarray([[len(route.links)] for route in routes]).reshape(-1, 1)
            for links, routes in zip(self._links, self._routes, strict=True)
        ]
        self._dst = [np.asarray([route.dst for route in routes], np.int64) for routes in self._routes]
        self._alpha = [np.asarray([route.alpha for route in routes]) for routes in self._routes]
        self._pace = [np.asarray([float(1 / route.bandwidth) for route in routes]) for routes in self._routes]
        self._fixed: list[_Fixed] = []

    def spread_to_all(self) -> None:
        """Sends every chunk to every rank."""
        ranks = self._collective.ranks
        wants = np.ones((len(self._bytes), ranks), bool)
        missing = np.full(len(self._bytes), ranks)
        heap: list[tuple[float, int, int, int, float]] = []
        for chunk in range(len(self._bytes)):
            (holder,) = self._collective.pre(chunk)
            wants[chunk, holder] = False
            missing[chunk] -= 1
            heap.append((0.0, 0, chunk, holder, 0.0))
        heapq.heapify(heap)
        count = 0
        while heap:
            _, _, chunk, rank, since = heapq.heappop(heap)
            if not missing[chunk] or not len(self._dst[rank]):
                continue
            self._check_time(count)
            arrivals = self._arrivals(chunk, rank, since)
            arrivals[~wants[chunk, self._dst[rank]]] = np.inf
            best = int(np.argmin(arrivals))
            arrival = float(arrivals[best])
            if np.isinf(arrival):
                continue
            count += 1
            if heap and arrival > heap[0][0]:
                heapq.heappush(heap, (arrival, count, chunk, rank, since))
                continue
            route = self._routes[rank][best]
            self._fix(chunk, route, since)
            wants[chunk, route.dst] = False
            missing[chunk] -= 1
            heapq.heappush(heap, (arrival, count, chunk, rank, since))
            heapq.heappush(heap, (arrival, count, chunk, route.dst, arrival))

    def send_each(self) -> None:
        """Sends every chunk to the one rank that wants it."""
        ranks = self._collective.ranks
        jobs = []
        for chunk in range(len(self._bytes)):
            (src,), (dst,) = self._collective.pre(chunk), self._collective.post(chunk)
            if src != dst:
                jobs.append(((dst - src) % ranks, chunk, src, dst))
        load = np.zeros(len(self._free))
        paths: list[list[Route]] = []
        for count, (_, chunk, src, dst) in enumerate(sorted(jobs)):
            self._check_time(count)
            paths.append(self._cheapest_path(chunk, src, dst, load))
            for route in paths[-1]:
                links = list(route.links)
                load[links] += self._bytes[chunk] / self._rate[links]
        ready = [(0.0, number, job[1], 0) for number, job in enumerate(sorted(jobs))]
        while ready:
            since, number, chunk, hop = heapq.heappop(ready)
            arrival = self._fix(chunk, paths[number][hop], since)
            if hop + 1 < len(paths[number]):
                heapq.heappush(ready, (arrival, number, chunk, hop + 1))

    def transfers(self) -> list[Transfer]:
        """All transfers by start; a step is one after the arrival of the value, and lanes keep their order."""
        arrived: dict[tuple[int, int], int] = {}
        lane: dict[tuple[int, ...], int] = defaultdict(int)
        rows = []
        for fixed in sorted(self._fixed, key=lambda fixed: fixed.start):
            route = fixed.route
            step = max(arrived.get((fixed.chunk, route.src), 0), lane[route.links])
            arrived[fixed.chunk, route.dst] = step + 1
            lane[route.links] = step
            rows.append(Transfer(fixed.chunk, fixed.chunk, route.src, route.dst, step, route.links))
        return sorted(rows, key=lambda row: row.step)

    def _arrivals(self, chunk: int, rank: int, since: float) -> NDArray[np.float64]:
        """When the chunk would arrive by each route from the rank that holds it since then."""
        free = self._free[self._links[rank]].max(axis=1)
        arrivals: NDArray[np.float64] = (
            np.maximum(free, since) + self._alpha[rank] + self._bytes[chunk] * self._pace[rank]
        )
        return arrivals

    def _fix(self, chunk: int, route: Route, since: float) -> float:
        """Fixes the transfer and returns its arrival. A fast link of a slow route is taken only as long as it needs."""
        links = list(route.links)
        start = max(since, float(self._free[links].max()))
        self._free[links] = start + self._bytes[chunk] / self._rate[links]
        self._fixed.append(_Fixed(start, chunk, route))
        return start + route.alpha + self._bytes[chunk] / float(route.bandwidth)

    def _cheapest_path(self, chunk: int, src: int, dst: int, load: NDArray[np.float64]) -> list[Route]:
        """The routes of least cost (Dijkstra): alphas, load of the links so far in seconds, and the chunk's own."""
        costs = np.full(self._collective.ranks, np.inf)
        costs[src] = 0.0
        came: dict[int, Route] = {}
        heap = [(0.0, src)]
        link_cost = load + self._bytes[chunk] / self._rate
        while heap:
            cost, rank = heapq.heappop(heap)
            if cost > costs[rank]:
                continue
            if cost >= costs[dst]:
                break
            on_route = np.where(self._is_link[rank], link_cost[self._links[rank]], 0.0).sum(axis=1)
            there = cost + self._alpha[rank] + on_route
            targets = self._dst[rank]
            for position in np.flatnonzero(there < costs[targets]).tolist():
                target = int(targets[position])
                if there[position] < costs[target]:
                    costs[target] = there[position]
                    came[target] = self._routes[rank][position]
                    heapq.heappush(heap, (float(there[position]), target))
        path = [came[dst]]
        while path[-1].src != src:
            path.append(came[path[-1].src])
        return path[::-1]

    def _check_time(self, count: int) -> None:
        if count % 256 == 0 and not self._budget.left():
            raise OutOfTimeError(f"engine greedy needs more than {self._budget.timeout:g} s; give more with --timeout")


def _padded(rows: list[tuple[int, ...]]) -> NDArray[np.int64]:
    width = max((len(row) for row in rows), default=1)
    return np.asarray([row + row[-1:] * (width - len(row)) for row in rows], np.int64).reshape(len(rows), width)
