"""Unequal shares: assigns sequences to ranks by their speeds, so that all finish at the same time.

    speeds 3 1, 8 sequences     6 2 of each microbatch     a step takes 2 units, not the 4 of equal shares

All ranks have equally many microbatches; those of a slow rank have fewer sequences, and weigh less in the loss.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from syntony.base.command import UserError


def shares_by_speed(rows: int, speeds: Sequence[float], least: int = 1) -> tuple[int, ...]:
    """Assigns rows to ranks of these relative speeds so that the last one finishes first: each row goes to the rank
    that would finish it soonest, which is optimal. Raises UserError for too few rows.

    least    for each rank
    """
    if rows < least * len(speeds):
        raise UserError(f"{rows} sequences are too few for {len(speeds)} ranks of {least} at least")
    if not all(speed > 0 for speed in speeds):
        raise UserError(f"speeds are {', '.join(f'{speed:g}' for speed in speeds)}; each must be above 0")
    found = [least] * len(speeds)
    ends = [((least + 1) / speed, rank) for rank, speed in enumerate(speeds)]
    heapq.heapify(ends)
    for _ in range(rows - least * len(speeds)):
        _, rank = ends[0]
        found[rank] += 1
        heapq.heapreplace(ends, ((found[rank] + 1) / speeds[rank], rank))
    return tuple(found)


def last(shares: Sequence[int], speeds: Sequence[float]) -> int:
    """The rank that finishes last with these shares; the first of several."""
    return max(range(len(shares)), key=lambda rank: (shares[rank] / speeds[rank], -rank))
