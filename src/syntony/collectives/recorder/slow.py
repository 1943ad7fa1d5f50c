"""Finds the rank that the others wait for: one that is slow but alive, so that no error names it.

A collective ends for all its ranks at about the same time. The last rank to arrive spends the least time in it, and the
difference to the others is the time that they waited:

    rank 0   | step |============ all_reduce ============|
    rank 1   | step |============ all_reduce ============|
    rank 2   |-------- step, slowly --------|=== all_r ==|
                    '------ delay ----------'

Only durations are compared, so clocks of hosts need not agree. (C4, arXiv:2406.04594, finds stragglers by the same
asymmetry.) A rank that is late only because the collective before ended later for it than for the others, as a
broadcast does at its last leaves, is not slow: no more than the additional time that it spent between the two counts.
A rank is named if it delayed the others by a tenth of the time, and repeatedly: in most parts of that time. The window
is the last minute and also, to detect a new straggler soon, only the end of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from syntony.base.wording import time
from syntony.collectives.recorder.records import Dump, Operation

SHARE = 0.1  # of the time: the threshold for slow
PARTS, MOST = 5, 4  # equal parts of the operations, and in how many of them a rank must have been late
FEWEST = 20  # collectives needed for a verdict
SHORTEST = 0.5  # seconds needed for a verdict
WINDOWS = (60.0, 20.0)  # lengths of the windows in seconds, up to now
_TOGETHER = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"}  # none ends before all arrive


@dataclass(frozen=True)
class Slow:
    """A rank that delays a group in the examined collectives."""

    group: str
    rank: int  # of the job
    waited: float  # seconds that each of the others waited for it in total
    seconds: float  # from the first of the collectives to the end of the last
    collectives: int

    def __str__(self) -> str:
        return (
            f"rank {self.rank} is slow: in {self.collectives} collectives the others waited {time(self.waited)} "
            f"for it, {100 * self.waited / self.seconds:.0f}% of the last {time(self.seconds)}"
        )


def slow_ranks(dumps: Sequence[Dump]) -> list[Slow]:
    """Examines every group with at least two ranks whose records are present; the slowest of a group comes first."""
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
    calls = [[of_rank[rank][sequence] for sequence in common] for rank in members]
    inside = np.array([[call.inside for call in of_one] for of_one in calls])
    before = np.array([[call.before for call in of_one] for of_one in calls])
    seconds = calls[0][-1].created + calls[0][-1].inside - calls[0][0].created
    if seconds < SHORTEST:
        return []
    slow = []
    for place, rank in enumerate(members):
        others = (
            np.median(np.delete(inside, place, axis=0), axis=0),
            np.median(np.delete(before, place, axis=0), axis=0),
        )
        own = np.where(np.isnan(before).any(axis=0), np.inf, before[place] - others[1])
        delays = np.minimum(others[0] - inside[place], own)
        parts = [float(part.sum()) for part in np.array_split(delays, PARTS)]
        late = sum(part > SHARE * seconds / PARTS / 2 for part in parts)
        if sum(parts) >= SHARE * seconds and late >= MOST:
            slow.append(Slow(name, rank, sum(parts), seconds, len(common)))
    return slow


class _Call(NamedTuple):
    """Of one rank, by its clock; in seconds."""

    created: float
    inside: float  # from the call to the end
    before: float  # since the group's previous operation ended; nan: not known, or they overlap


def _finished(dump: Dump, name: str, members: tuple[int, ...], window: float) -> dict[int, _Call]:
    """By sequence number, within the last `window` seconds."""
    if not any((group.name, group.members) == (name, members) for group in dump.groups):
        return {}
    ends = {one.sequence: one.finished for one in dump.operations if one.group == name and one.finished is not None}
    calls = {}
    for one in dump.operations:
        if one.group == name and one.finished is not None and _counts(one, dump.monotonic - window):
            before = one.created - ends.get(one.sequence - 1, math.nan)
            calls[one.sequence] = _Call(one.created, one.finished - one.created, before if before >= 0 else math.nan)
    return calls


def _counts(one: Operation, since: float) -> bool:
    return one.sequence > 0 and one.state == "completed" and one.collective in _TOGETHER and one.created > since
