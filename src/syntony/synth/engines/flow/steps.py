"""Steps of paths: the order of chunks that take the same route.

Every path is a chain of hops from rank to rank. A route takes one chunk per step. A chunk leaves a rank at the earliest
one step after it arrived. Of the chunks that are ready, the one with the most hops to go is first (Hu's rule, "level
scheduling": Hu, Operations Research 9(6), 1961):

    chunks   a: 0 1 2,  b: 0 1              step    0    1    2          route 0 -> 1 takes a, then b
                                            0 -> 1  a    b
                                            1 -> 2       a

Routes in one orbit of the symmetry have one name, so that the order is the same for all of them.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Sequence


def steps_of(hops: Sequence[Sequence[Hashable]]) -> list[list[int]]:
    """The step of every hop of every path, given the names of the routes that they take."""
    steps = [[0] * len(path) for path in hops]
    ready: defaultdict[Hashable, list[tuple[int, int]]] = defaultdict(list)
    for number, path in enumerate(hops):
        if path:
            heapq.heappush(ready[path[0]], (-len(path), number))
    step = 0
    done = [0] * len(hops)
    while ready:
        moved = [(way, heapq.heappop(waiting)[1]) for way, waiting in ready.items()]
        for way in [way for way, waiting in ready.items() if not waiting]:
            del ready[way]
        for _, number in moved:
            steps[number][done[number]] = step
            done[number] += 1
            to_go = hops[number][done[number] :]
            if to_go:
                heapq.heappush(ready[to_go[0]], (-len(to_go), number))
        step += 1
    return steps
