"""Maximum flow in whole numbers of any length, after Dinic (1970): phases of breadth-first layers and blocking flows.

Exact bounds scale fractions to integers that overflow the 32 bits of SciPy's routine; Python's do not overflow.
"""

from __future__ import annotations

from collections import deque


class FlowNetwork:
    """A directed graph with capacities. Arc 2i is the i-th arc added, arc 2i+1 its reverse in the residual graph."""

    def __init__(self, nodes: int) -> None:
        self._arcs: list[list[int]] = [[] for _ in range(nodes)]
        self._head: list[int] = []
        self._left: list[int] = []

    def add(self, src: int, dst: int, capacity: int) -> None:
        """Adds an arc."""
        for end, head, left in ((src, dst, capacity), (dst, src, 0)):
            self._arcs[end].append(len(self._head))
            self._head.append(head)
            self._left.append(left)

    def max_flow(self, source: int, sink: int) -> tuple[int, frozenset[int]]:
        """Value of a maximum flow and the source side of a minimum cut. Consumes the capacities: call it once."""
        flow = 0
        while True:
            level = self._levels(source)
            if level[sink] < 0:
                return flow, frozenset(node for node, depth in enumerate(level) if depth >= 0)
            flow += self._blocking_flow(source, sink, level)

    def _levels(self, source: int) -> list[int]:
        level = [-1] * len(self._arcs)
        level[source] = 0
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for arc in self._arcs[node]:
                head = self._head[arc]
                if self._left[arc] and level[head] < 0:
                    level[head] = level[node] + 1
                    queue.append(head)
        return level

    def _blocking_flow(self, source: int, sink: int, level: list[int]) -> int:
        """Depth-first augmentation, iterative: `path` holds arcs, `cursor` the next arc to try at each node."""
        cursor = [0] * len(self._arcs)
        path: list[int] = []
        node, total = source, 0
        while True:
            if node == sink:
                amount = min(self._left[arc] for arc in path)
                total += amount
                keep = len(path)
                for position in reversed(range(len(path))):
                    arc = path[position]
                    self._left[arc] -= amount
                    self._left[arc ^ 1] += amount
                    if not self._left[arc]:
                        keep = position
                node = self._head[path[keep] ^ 1]
                del path[keep:]
                continue
            arcs = self._arcs[node]
            while cursor[node] < len(arcs):
                arc = arcs[cursor[node]]
                if self._left[arc] and level[self._head[arc]] == level[node] + 1:
                    path.append(arc)
                    node = self._head[arc]
                    break
                cursor[node] += 1
            else:
                if not path:
                    return total
                arc = path.pop()
                node = self._head[arc ^ 1]
                cursor[node] += 1
