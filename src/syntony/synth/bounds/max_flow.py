"""Maximum flow in integers of any length: in C++ if they fit into 64 bits, else here.

Exact bounds scale fractions to a common denominator. For the rates of real links the integers are small, but a topology
may have any rational bandwidth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from syntony._solve import FlowNetwork
from syntony.synth.bounds.arcs import Int32s

LARGEST = 2**63 - 1


class Flow(Protocol):
    """A graph with capacities and a flow in it; see `syntony._core.FlowNetwork`."""

    def augment(self, source: int, sink: int, limit: int | None = None) -> int:
        """Sends as much more as fits (at most `limit`); returns how much."""

    def flow(self, arc: int) -> int:
        """The flow through the arc."""

    def set_capacity(self, arc: int, capacity: int) -> None:
        """A new capacity for one arc; the flow stays and must fit."""

    def reset(self) -> None:
        """The flow back to zero."""

    def reachable_from(self, source: int) -> NDArray[np.bool_]:
        """Which nodes can still be sent to."""

    def reaching(self, sink: int) -> NDArray[np.bool_]:
        """Which nodes can still send to the sink."""


def flow_network(nodes: int, tails: Int32s, heads: Int32s, capacities: Sequence[int], room: int = 0) -> Flow:
    """A graph without flow. `room`: how much later changes may add to all capacities together."""
    if sum(capacities) + room > LARGEST:
        return LongFlowNetwork(nodes, tails, heads, capacities)
    return FlowNetwork(nodes, tails, heads, np.asarray(capacities, np.int64))


class LongFlowNetwork:
    """Dinic's phases of breadth-first layers and blocking flows, in Python's integers.

    Index 2i is arc i, index 2i+1 its reverse in the residual graph.
    """

    def __init__(self, nodes: int, tails: Int32s, heads: Int32s, capacities: Sequence[int]) -> None:
        self._places: list[list[int]] = [[] for _ in range(nodes)]
        self._head: list[int] = []
        self._capacity = list(capacities)
        for tail, head in zip(tails.tolist(), heads.tolist(), strict=True):
            for end, other in ((tail, head), (head, tail)):
                self._places[end].append(len(self._head))
                self._head.append(other)
        self.reset()

    def reset(self) -> None:
        """The flow back to zero."""
        self._left = [left for capacity in self._capacity for left in (capacity, 0)]

    def flow(self, arc: int) -> int:
        """The flow through the arc."""
        return self._left[2 * arc + 1]

    def set_capacity(self, arc: int, capacity: int) -> None:
        """A new capacity for one arc; the flow stays and must fit."""
        if capacity < self._left[2 * arc + 1]:
            raise ValueError(f"arc {arc} carries {self._left[2 * arc + 1]}; its capacity cannot become {capacity}")
        self._capacity[arc] = capacity
        self._left[2 * arc] = capacity - self._left[2 * arc + 1]

    def augment(self, source: int, sink: int, limit: int | None = None) -> int:
        """Sends as much more as fits (at most `limit`); returns how much."""
        most = sum(self._capacity) if limit is None else limit
        flow = 0
        while flow < most:
            level = self._levels(source, 0)
            if level[sink] < 0:
                break
            flow += self._blocking_flow(source, sink, level, most - flow)
        return flow

    def reachable_from(self, source: int) -> NDArray[np.bool_]:
        """Which nodes can still be sent to."""
        return np.asarray(self._levels(source, 0)) >= 0

    def reaching(self, sink: int) -> NDArray[np.bool_]:
        """Which nodes can still send to the sink."""
        return np.asarray(self._levels(sink, 1)) >= 0

    def _levels(self, start: int, backwards: int) -> list[int]:
        level = [-1] * len(self._places)
        level[start] = 0
        queue = deque([start])
        while queue:
            node = queue.popleft()
            for place in self._places[node]:
                head = self._head[place]
                if self._left[place ^ backwards] and level[head] < 0:
                    level[head] = level[node] + 1
                    queue.append(head)
        return level

    def _blocking_flow(self, source: int, sink: int, level: list[int], limit: int) -> int:
        """Depth-first augmentation, iterative: `path` holds arc indices, `cursor` the next one to try at each node."""
        cursor = [0] * len(self._places)
        path: list[int] = []
        node, total = source, 0
        while True:
            if node == sink:
                amount = min(limit - total, *(self._left[place] for place in path))
                total += amount
                keep = len(path)
                for position in reversed(range(len(path))):
                    place = path[position]
                    self._left[place] -= amount
                    self._left[place ^ 1] += amount
                    if not self._left[place]:
                        keep = position
                if total == limit:
                    return total
                node = self._head[path[keep] ^ 1]
                del path[keep:]
                continue
            places = self._places[node]
            while cursor[node] < len(places):
                place = places[cursor[node]]
                if self._left[place] and level[self._head[place]] == level[node] + 1:
                    path.append(place)
                    node = self._head[place]
                    break
                cursor[node] += 1
            else:
                if not path:
                    return total
                place = path.pop()
                node = self._head[place ^ 1]
                cursor[node] += 1
