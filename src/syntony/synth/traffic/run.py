"""Run: jobs on a topology as flows with paths, simulated (simulation/flows.py).

iteration 0 of job a:   flow 0 computes ─▶ flows 1.. are its messages ─▶ iteration 1: computes, ..
                        (no links, only latency)      (one per queue pair)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.synth.simulation.flows import Flows, FlowTimes, Paths, simulate_flows
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.messages import MOST, Column, TooMuchError
from syntony.synth.traffic.paths import PathFinder
from syntony.synth.traffic.ragged import offsets, ranges
from syntony.topologies.topology import Topology


@dataclass(frozen=True)
class Shift:
    """When a job's iterations may start: iteration i not before `start + i * period` seconds."""

    start: float
    period: float


@dataclass(frozen=True, eq=False)
class Traffic:
    """Flows, and what each represents: columns, one row per flow.

    job        in `flows`: which of `jobs`
    iteration  int64
    message    int64: which of the job's messages; -1 for its computing

    `shifts`, one per job, say when the jobs' iterations may start; None: as given in the jobs.
    """

    topology: Topology
    jobs: tuple[Job, ...]
    choice: Choice
    flows: Flows
    iteration: Column
    message: Column
    shifts: tuple[Shift, ...] | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of simulating traffic."""

    traffic: Traffic
    times: FlowTimes

    @property
    def seconds(self) -> float:
        """The time of the last arrival."""
        return self.times.seconds

    def iterations(self, job: int) -> NDArray[np.float64]:
        """Seconds that each iteration of the job took, from the end of the one before."""
        mine = self.traffic.flows.job == job
        ends = np.zeros(self.traffic.jobs[job].iterations)
        np.maximum.at(ends, self.traffic.iteration[mine], self.times.arrival[mine])
        first = int(np.argmax(mine))  # the computing of iteration 0
        return np.diff(ends, prepend=float(self.times.start[first]))

    def iteration_seconds(self, job: int) -> float:
        """Seconds of one iteration of the job: the mean, without the first one if there are several."""
        took = self.iterations(job)
        return float(took[1:].mean() if len(took) > 1 else took[0])

    @cached_property
    def on_links(self) -> tuple[Column, Column, NDArray[np.float64]]:
        """Three columns: a flow, a link that it loads, and the bytes that it puts there."""
        flows, paths = self.traffic.flows, self.traffic.flows.paths
        sets = flows.set.astype(np.int64)
        one = self.times.path >= 0
        first = np.where(one, self.times.path, paths.set_offset[sets]).astype(np.int64)
        count = np.where(one, 1, paths.set_offset[sets + 1] - paths.set_offset[sets])
        flow = np.repeat(np.arange(len(flows)), count)
        path = ranges(first, count)
        hops = paths.path_offset[path + 1] - paths.path_offset[path]
        link = paths.link[ranges(paths.path_offset[path], hops)].astype(np.int64)
        part = flows.bytes[flow] / count[flow]
        weight = paths.weight[ranges(paths.path_offset[path], hops)]
        return np.repeat(flow, hops), link, np.repeat(part, hops) * weight

    @cached_property
    def carried(self) -> NDArray[np.float64]:
        """Bytes per link."""
        _, link, amount = self.on_links
        return np.bincount(link, amount, minlength=len(self.traffic.topology.links)).astype(float)

    @cached_property
    def utilization(self) -> NDArray[np.float64]:
        """Per link, the part of its capacity in use over the whole run."""
        return self.carried / (self.traffic.flows.capacity * (self.seconds or 1.0))

    def seconds_with(self, capacity: NDArray[np.float64]) -> float:
        """Seconds of the same traffic on links of that capacity, bytes/s."""
        return simulate(replace(self.traffic, flows=replace(self.traffic.flows, capacity=capacity))).seconds

    def seconds_by(self, choice: Choice) -> float:
        """Seconds of the same traffic on other paths. Raises TooMuchError if that is too much to simulate."""
        return run(self.traffic.topology, self.traffic.jobs, choice, self.traffic.shifts).seconds


def run(
    topology: Topology,
    jobs: Sequence[Job],
    choice: Choice,
    shifts: Sequence[Shift] | None = None,
    timeline: bool = False,
) -> Outcome:
    """Simulates the jobs side by side; `timeline` requests the rates of links over time.

    Raises UserError for a member that is not in the topology or that another cannot reach, and for too much traffic.
    """
    return simulate(flows_of(topology, jobs, choice, shifts), timeline)


def simulate(traffic: Traffic, timeline: bool = False) -> Outcome:
    """Simulates traffic."""
    return Outcome(traffic, simulate_flows(traffic.flows, timeline=timeline))


def flows_of(topology: Topology, jobs: Sequence[Job], choice: Choice, shifts: Sequence[Shift] | None = None) -> Traffic:
    """The flows of all iterations of all jobs, each with its paths."""
    for job in jobs:
        if not all(0 <= member < topology.ranks for member in job.members):
            raise UserError(
                f"job {job.name}: member {max(job.members)} is not a rank of {topology.name}; "
                f"its ranks are 0..{topology.ranks - 1}"
            )
    count = sum(job.iterations * (1 + len(job.messages) * choice.queue_pairs) for job in jobs)
    if count > MOST:
        raise TooMuchError(
            f"the jobs send {count} messages; at most {MOST} are simulated at once: take fewer iterations"
        )
    kept = tuple(shifts) if shifts is not None else None
    parts, base = [], 0
    for number, job in enumerate(jobs):
        shift = shifts[number] if shifts is not None else Shift(job.start, 0.0)
        parts.append(_JobFlows(job, number, choice, shift, base))
        base += parts[-1].count

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts])

    paths, sets = _placed(topology, choice, *(joined(name) for name in ("src", "dst", "job", "queue_pair")))
    alpha = np.asarray([link.alpha for link in topology.links])
    flows = Flows(
        bytes=joined("bytes"),
        latency=joined("delay") + _latency(paths, alpha)[sets],
        release=joined("release"),
        after_offset=offsets(joined("waits")),
        after=joined("after"),
        after_left_offset=offsets(joined("waits_left")),
        after_left=joined("after_left"),
        set=sets,
        policy=np.full(base, choice.policy, np.uint8),
        job=joined("job"),
        paths=paths,
        capacity=np.asarray([float(link.bandwidth) for link in topology.links]),
    )
    return Traffic(topology, tuple(jobs), choice, flows, joined("iteration"), joined("message"), kept)


class _JobFlows:
    """The flows of a job, from row `base` on. Per iteration: its computing, then message by message its queue pairs."""

    def __init__(self, job: Job, number: int, choice: Choice, shift: Shift, base: int) -> None:
        messages, pairs = job.messages, choice.queue_pairs
        members = np.asarray(job.members, np.int64)
        wide = 1 + len(messages) * pairs
        self.count = wide * job.iterations
        repeated = np.repeat(np.arange(len(messages)), pairs)
        each = np.r_[-1, repeated]  # the message of each row of an iteration
        self.message = np.tile(each, job.iterations)
        self.iteration = np.repeat(np.arange(job.iterations), wide)
        self.job = np.full(self.count, number)
        self.queue_pair = np.tile(np.r_[0, np.tile(np.arange(pairs), len(messages))], job.iterations)
        ends = [np.r_[members[0], members[column[repeated]]] for column in (messages.src, messages.dst)]
        self.src, self.dst = (np.tile(column, job.iterations) for column in ends)
        self.bytes = np.tile(np.r_[0.0, messages.bytes[repeated] / pairs], job.iterations)
        self.delay = np.tile(np.r_[job.compute, messages.delay[repeated]], job.iterations)
        self.release = np.zeros(self.count)
        starts = np.arange(job.iterations) * wide
        self.release[starts] = shift.start + np.arange(job.iterations) * shift.period

        # Rows of iteration 0: a message waits for all queue pairs of its predecessors, the first messages for row 0.
        degree = np.where(messages.first, 1, np.diff(messages.offset) * pairs)
        awaited = np.zeros(int(degree.sum()), np.int64)
        awaited[np.repeat(~messages.first, degree)] = (1 + messages.after[:, None] * pairs + np.arange(pairs)).ravel()
        waits = np.repeat(degree, pairs)
        flat = awaited[ranges(np.repeat(np.cumsum(degree) - degree, pairs), waits)]
        last = 1 + (np.flatnonzero(messages.last)[:, None] * pairs + np.arange(pairs)).ravel()
        per_iteration = np.r_[len(last), waits]
        self.waits = np.tile(per_iteration, job.iterations)
        self.waits[:1] = 0
        follows = np.repeat(messages.follows, pairs)
        ahead = 1 + follows * pairs + np.tile(np.arange(pairs), len(messages))
        left = ahead[follows >= 0]
        self.waits_left = np.tile(np.r_[0, np.where(follows >= 0, 1, 0)], job.iterations)
        offset = base + starts[:, None]
        before = np.concatenate((last[None] - wide + offset, flat[None] + offset), axis=1)
        self.after = before.ravel()[len(last) :]
        self.after_left = (left[None] + offset).ravel()


def _placed(
    topology: Topology, choice: Choice, src: Column, dst: Column, job: Column, queue_pair: Column
) -> tuple[Paths, Column]:
    """Sets of paths, and the set of each flow: one per connection, or per pair of ranks if the job is irrelevant."""
    keys = [src, dst] if choice.policy or choice.name == "single" else [src, dst, job, queue_pair]
    number = np.zeros(len(src), np.int64)
    for key in keys:
        number = np.unique(number * (int(key.max(initial=0)) + 1) + key, return_inverse=True)[1]
    _, row = np.unique(number, return_index=True)
    return choice.place(PathFinder(topology), src[row], dst[row], job[row], queue_pair[row]), number


def _latency(paths: Paths, alpha: NDArray[np.float64]) -> NDArray[np.float64]:
    """Per set, the sum of alphas of its slowest path."""
    owner = np.repeat(np.arange(len(paths.path_offset) - 1), np.diff(paths.path_offset))
    path = np.bincount(owner, alpha[paths.link], minlength=len(paths.path_offset) - 1)
    slowest: NDArray[np.float64] = np.maximum.reduceat(path, paths.set_offset[:-1])
    return slowest
