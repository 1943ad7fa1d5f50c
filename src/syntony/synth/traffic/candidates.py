"""Chooses where jobs should run, among the places that a scheduler would accept: where they interleave best.

    job a may be on 0-1,4-5 or 0-3      every choice of places in which no two jobs share a rank is a candidate;
    job b may be on 2-3,6-7 or 4-7      its score: how much of their demand on shared links fits after time shifts

CASSINI (Rajasekaran, Ghobadi, Akella, NSDI'24): the scheduler proposes candidates; each gets an affinity graph, time
shifts found on it, and a score, the mean of 1 - excess over the links that jobs share. Here only links that could be
contested at all count; a placement without any scores 1. CASSINI rejects a placement whose affinity graph has a loop;
here the excess that its shifts leave counts. Among equal scores, the first is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from syntony.base.command import UserError
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.interleave import Interleaving, interleave
from syntony.synth.traffic.job import Job
from syntony.topologies.topology import Topology

MOST = 200
"""The most candidates considered."""
Members = tuple[int, ...]


@dataclass(frozen=True)
class Placement:
    """The places of jobs, and the excess that time shifts leave. score: 1 is no overlap on any link."""

    jobs: tuple[Job, ...]
    shifts: Interleaving
    score: float


def ranked(
    topology: Topology, jobs: Sequence[Job], places: Sequence[Sequence[Members]], choice: Choice
) -> list[Placement]:
    """All placements, the best first. `places`: by job, where it may be; the scheduler's favourite first.

    Raises UserError if there is none, or if there are more than MOST.
    """
    found = []
    for members in _candidates(places):
        placed = tuple(replace(job, members=there) for job, there in zip(jobs, members, strict=True))
        shifts = interleave(topology, placed, choice)
        over = [link.excess for link in shifts.links]
        found.append(Placement(placed, shifts, 1.0 - sum(over) / len(over) if over else 1.0))
    return sorted(found, key=lambda one: -round(one.score, 9))


def _candidates(places: Sequence[Sequence[Members]]) -> Iterator[tuple[Members, ...]]:
    count = 0
    for members in product(*places):
        if len(set().union(*members)) < sum(map(len, members)):
            continue
        count += 1
        if count > MOST:
            raise UserError(f"the jobs can be placed in more than {MOST} ways; give them fewer candidates")
        yield members
    if not count:
        raise UserError("the jobs' candidates always have a rank in common; there is no way to place all of them")
