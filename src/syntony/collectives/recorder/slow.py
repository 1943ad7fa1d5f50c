"""Which rank the others wait for: one that is slow, not dead, so that no error names it.

A collective ends for all its ranks at about the same time. Who comes last spends the least time in it, and how much
less than the others is what they waited:

    rank 0   | step |============ all_reduce ============|
    rank 1   | step |============ all_reduce ============|
    rank 2   |-------- step, slowly --------|=== all_r ==|
                    '------ delay ----------'

Durations are compared and never clocks, so hosts need not agree about the time. (C4, arXiv:2406.04594, finds stragglers
by the same asymmetry.) A rank is named if it delayed the others by a tenth of the time, and not only once: in most
parts of that time. The last minute is looked at, and, to name soon who has become slow, the end of it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from syntony.base.wording import time
from syntony.collectives.recorder.records import Dump, Operation

SHARE = 0.1  # of the time: what is called slow
PARTS, MOST = 5, 4  # equal parts of the operations, and in how many of them a rank must have been late
FEWEST = 20  # collectives that a verdict needs
SHORTEST = 0.5  # seconds that a verdict needs
WINDOWS = (60.0, 20.0)  # seconds looked at, up to now
_TOGETHER = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"}  # nobody ends before all have come


@dataclass(frozen=True)
class Slow:
    """A rank that delays a group, in the collectives that were looked at."""

    group: str
    rank: int  # of the job
    waited: float  # seconds that each of the others waited for it, in all
    seconds: float  # from the first of the collectives to the end of the last
    collectives: int

    def __str__(self) -> str:
        return (
            f"rank {self.rank} is slow: in {self.collectives} collectives the others waited {time(self.waited)} "
            f"for it, {100 * self.waited / self.seconds:.0f}% of the last {time(self.seconds)}"
        )


def slow_ranks(dumps: Sequence[Dump]) -> list[Slow]:
    """Of every group with two ranks or more whose records are there; the slowest of a group first."""
    found = []
    for name, members in dict.fromkeys((group.name, group.members) for dump in dumps for group in dump.groups):
        named: dict[int, Slow] = {}
        for window in WINDOWS:
            for one in _slow_in(name, members, dumps, window):
                named.setdefault(one.rank, one)
        found += sorted(named.values(), key=lambda one: -one.waited / one.seconds)
    return found


def _slow_in(name: str, members: tuple[int, ...], dumps: Sequence[Dump], window: float) -> list[Slow]:
    of_rank = {dump.rank: _finished(dump, name, members, window) for dump in dumps if dump.rank in members}
    if len(members) < 2 or len(of_rank) < len(members):
        return []
    common = sorted(set.intersection(*(set(operations) for operations in of_rank.values())))
    if len(common) < FEWEST:
        return []
    inside = np.array([[of_rank[rank][sequence][1] for sequence in common] for rank in members])
    first = of_rank[members[0]]
    seconds = first[common[-1]][0] + first[common[-1]][1] - first[common[0]][0]
    if seconds < SHORTEST:
        return []
    slow = []
    for place, rank in enumerate(members):
        delays = np.median(np.delete(inside, place, axis=0), axis=0) - inside[place]
        parts = [float(part.sum()) for part in np.array_split(delays, PARTS)]
        late = sum(part > SHARE * seconds / PARTS / 2 for part in parts)
        if sum(parts) >= SHARE * seconds and late >= MOST:
            slow.append(Slow(name, rank, sum(parts), seconds, len(common)))
    return slow


def _finished(dump: Dump, name: str, members: tuple[int, ...], window: float) -> dict[int, tuple[float, float]]:
    """By sequence number, of the last `window` seconds: when the call came, and how long it took."""
    if not any((group.name, group.members) == (name, members) for group in dump.groups):
        return {}
    return {
        one.sequence: (one.created, one.finished - one.created)
        for one in dump.operations
        if one.group == name and one.finished is not None and _counts(one, dump.monotonic - window)
    }


def _counts(one: Operation, since: float) -> bool:
    return one.sequence > 0 and one.state == "completed" and one.collective in _TOGETHER and one.created > since
