"""Interleaving: when jobs that share links should start, so that one communicates while the other computes.

    job a   ▁▁▁▁████▁▁▁▁████        the circle is the least time after which all jobs repeat;
    job b   ▁▁▁▁████▁▁▁▁████        turning job b by half its period separates the two
    job b'  ████▁▁▁▁████▁▁▁▁

CASSINI (Rajasekaran, Ghobadi, Akella, NSDI'24). Section 3, the geometric abstraction: wrap each job's demand on a link
around a circle whose perimeter is the least common multiple of the periods, and rotate the jobs to minimize demand
above the capacity. Section 4, the affinity graph: jobs and the links that they share, traversed breadth first, so that
a job has one time shift for all of its links. CASSINI rejects a placement whose graph has a loop; here the shifts found
first stay, and the report shows the remaining overlap.

Demands are those of each job alone. Periods are rounded up to whole slots of the circle, and a job that is early waits
for its turn, so shifts do not drift. Jobs whose periods have no short common multiple within a tenth are left alone.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.run import Outcome, Shift, flows_of, simulate
from syntony.topologies.topology import Topology

SLOTS = 240
"""The least number of slots of the shortest period: 1.5 degrees of its circle."""
_MOST_SLOTS = 2880
_MOST_LOSS = 1.1  # factor by which a period may grow
_ROUNDS = 4  # of rotating one job after another, if more than two share a link
_SAME = 1e-6  # of a link's capacity

Demand = dict[int, NDArray[np.float64]]
"""Per link, mean bytes/s in every slot of the circle."""


@dataclass(frozen=True)
class SharedLink:
    """A contested link: the part of the time-average demand above capacity, before and after.

    excess  bytes/s above the capacity, averaged over the circle, relative to the capacity: 0 is no overlap
    """

    link: int
    jobs: tuple[int, ...]
    excess_before: float
    excess: float


@dataclass(frozen=True)
class Interleaving:
    """Time shifts and periods per job, and the remaining overlap on the links that are shared."""

    shifts: tuple[Shift, ...]
    links: tuple[SharedLink, ...]


def interleave(topology: Topology, jobs: Sequence[Job], choice: Choice) -> Interleaving:
    """Time shifts for periodic jobs; `Job.start` is what they have before."""
    alone = [_alone(topology, jobs, number, choice) for number in range(len(jobs))]
    shifts = [Shift(job.start, 0.0) for job in jobs]
    links: list[SharedLink] = []
    for group in _groups(alone):
        circle = _circle([alone[job].seconds for job in group])
        if circle is None:
            continue
        slot, turns = circle
        slots = math.lcm(*turns)
        demands = {job: _demand(alone[job], slot, turn, slots) for job, turn in zip(group, turns, strict=True)}
        capacity = alone[0].traffic.flows.capacity
        contested = _contested(demands, capacity)
        if not contested:
            continue
        turned = _walk(demands, capacity, contested, dict(zip(group, turns, strict=True)))
        for link, sharing in contested.items():
            before = [np.roll(demands[job][link], round(jobs[job].start / slot)) for job in sharing]
            after = [np.roll(demands[job][link], turned[job]) for job in sharing]
            over = _excess(before, capacity[link]), _excess(after, capacity[link])
            links.append(SharedLink(link, tuple(sharing), *over))
        touched = {job for sharing in contested.values() for job in sharing}
        for job, turn in zip(group, turns, strict=True):
            if job in touched:
                shifts[job] = Shift(turned[job] * slot, turn * slot)
    return Interleaving(tuple(shifts), tuple(links))


def _groups(alone: Sequence[Outcome]) -> list[list[int]]:
    """Jobs that share links, directly or through other jobs."""
    group = list(range(len(alone)))
    used = [outcome.carried > 0 for outcome in alone]
    for one in range(len(alone)):
        for other in range(one):
            if (used[one] & used[other]).any():
                group = [group[other] if number == group[one] else number for number in group]
    return [
        members for root in dict.fromkeys(group) if len(members := [j for j, g in enumerate(group) if g == root]) > 1
    ]


def _alone(topology: Topology, jobs: Sequence[Job], number: int, choice: Choice) -> Outcome:
    """One iteration of the job alone, on the paths that it takes among the others."""
    silent = [replace(job, iterations=1 if position == number else 0) for position, job in enumerate(jobs)]
    return simulate(flows_of(topology, silent, choice, [Shift(0.0, 0.0)] * len(jobs)), timeline=True)


def _circle(periods: Sequence[float]) -> tuple[float, list[int]] | None:
    """Seconds of a slot, and slots per period, rounded up as little as a perimeter of _MOST_SLOTS allows."""
    best: tuple[float, int, float, list[int]] | None = None
    for divisor in range(SLOTS, 2 * SLOTS):
        slot = min(periods) / divisor
        turns = [math.ceil(period / slot * (1 - 1e-9)) for period in periods]
        # Near-simple ratios may be rounded to simple ones.
        for grain in (1, 2, 3, 4, 6, 8, 12, 24, 48, 120, divisor):
            rounded = [-(-turn // grain) * grain for turn in turns]
            perimeter = math.lcm(*rounded)
            loss = max(turn * slot / period for turn, period in zip(rounded, periods, strict=True))
            if perimeter <= _MOST_SLOTS and loss <= _MOST_LOSS:
                candidate = (round(loss, 3), perimeter, slot, rounded)
                if best is None or candidate[:2] < best[:2]:
                    best = candidate
    return best and (best[2], best[3])


def _demand(outcome: Outcome, slot: float, turn: int, slots: int) -> Demand:
    times = outcome.times
    edges = np.arange(turn + 1) * slot
    order = np.lexsort((times.times, times.link))
    links, first = np.unique(times.link[order], return_index=True)
    found = {}
    for link, rows in zip(links.tolist(), np.split(order, first[1:]), strict=True):
        moments, rates = times.times[rows], times.rate[rows]
        carried = np.concatenate(([0.0], np.cumsum(rates[:-1] * np.diff(moments))))  # the last rate is 0
        found[link] = np.tile(np.diff(np.interp(edges, moments, carried)) / slot, slots // turn)
    return found


def _contested(demands: Mapping[int, Demand], capacity: NDArray[np.float64]) -> dict[int, list[int]]:
    """Links that several jobs use and whose demand could exceed their capacity, with those jobs."""
    users: dict[int, list[int]] = {}
    for job, demand in demands.items():
        for link in demand:
            users.setdefault(link, []).append(job)
    return {
        link: sharing
        for link, sharing in sorted(users.items())
        if len(sharing) > 1 and sum(demands[job][link].max() for job in sharing) > capacity[link] * (1 + _SAME)
    }


def _walk(
    demands: Mapping[int, Demand],
    capacity: NDArray[np.float64],
    contested: Mapping[int, list[int]],
    turns: Mapping[int, int],
) -> dict[int, int]:
    """The rotation of each job in slots: breadth first on the affinity graph, a job's most crowded links first."""
    turned: dict[int, int] = {}
    crowd = {
        link: sum(float(demands[job][link].mean()) for job in jobs) / capacity[link] for link, jobs in contested.items()
    }
    seen: set[int] = set()
    for root in demands:
        if root in turned:
            continue
        turned[root] = 0
        queue = deque([root])
        while queue:
            job = queue.popleft()
            for link in sorted((link for link in contested if job in contested[link]), key=lambda link: -crowd[link]):
                if link in seen:
                    continue
                seen.add(link)
                free = [other for other in contested[link] if other not in turned]
                here = {other: demands[other][link] for other in contested[link]}
                _turn(free, here, float(capacity[link]), turned, turns)
                queue.extend(free)
    return turned


def _turn(
    free: Sequence[int],
    demand: Mapping[int, NDArray[np.float64]],
    capacity: float,
    turned: dict[int, int],
    turns: Mapping[int, int],
) -> None:
    """Rotates the free jobs of one link to minimize the demand above its capacity.

    The jobs are packed one after another, the largest first, as closely as possible; this repeats until there is no
    excess; finally each job moves to the middle of its free range.
    """

    def place(job: int, centred: bool) -> None:
        others = [np.roll(demand[other], turned[other]) for other in demand if other != job and other in turned]
        turned[job] = _best_turn(demand[job], sum(others, np.zeros(len(demand[job]))), capacity, turns[job], centred)

    free = sorted(free, key=lambda job: -float(demand[job].mean()))
    for _ in range(_ROUNDS if len(free) > 1 else 0):
        for job in free:
            place(job, centred=False)
        if _excess([np.roll(demand[job], turned[job]) for job in demand], capacity) < _SAME:
            break
    for job in free:
        place(job, centred=True)


def _best_turn(mine: NDArray[np.float64], rest: NDArray[np.float64], capacity: float, turn: int, centred: bool) -> int:
    """A rotation with the least excess: the first or the middle one of the longest run of such rotations."""
    # Row k of the windows is `mine` rotated back by k.
    back = np.lib.stride_tricks.sliding_window_view(np.concatenate((mine, mine)), len(mine))
    totals = back[(-np.arange(turn)) % len(mine)] + rest
    excess = np.maximum(totals - capacity, 0.0).mean(axis=1) / capacity
    good = excess <= excess.min() + _SAME
    if good.all():
        return 0
    start = int(np.argmin(good))  # start at a bad rotation, so that no run wraps around
    edges = np.flatnonzero(np.diff(np.r_[False, np.roll(good, -start), False].astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    longest = int(np.argmax(ends - begins))
    begin, end = int(begins[longest]), int(ends[longest])
    return ((begin + end - 1) // 2 + start if centred else begin + start) % turn


def _excess(demands: Sequence[NDArray[np.float64]], capacity: float) -> float:
    """The mean over the circle of the demand above the capacity, over the capacity (CASSINI's score is 1 - this)."""
    total = sum(demands, np.zeros(1))
    return float(np.maximum(total - capacity, 0.0).mean() / capacity)
