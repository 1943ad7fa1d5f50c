r"""Many jobs share a cluster and its switches that add: which hosts a job gets, and whether switches sum for it.

             spines      a job in several racks needs a slot in each of its leaves, and one in a spine; a job in one
            /  |  \      rack, one in its leaf. A switch has slots for so many jobs at a time
        leaf  leaf  leaf
        hosts hosts hosts

    packed   the rack that a job fills best, or else as few racks as possible; switches add if all happen to have slots
    spread   hosts of racks in turn; likewise
    hire     hosts and slots together, as a min-cost flow from waiting jobs to racks, where a rack costs more the fewer
             slots and hosts it has left; then a second one from the jobs to spines (Blöcher et al., HIRE, ASPLOS 2021;
             its abstract was read, costs and both networks are ours)

Between changes, all jobs that sum share links fairly, as if they did so at once. Without switches a job's ring moves
2 (n - 1) / n bytes over each host's link and each rack's, by byte of its gradients; with them, 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
_POSTPONED = 100.0  # cost of a rank that waits
_NO_SLOT = 4.0  # of a rank in a rack whose leaf cannot add for its job
_SPREAD = 2.0  # of a rank in a rack that has no room for the whole job, at most; of one whose leaf is nearly full: half


@dataclass(frozen=True)
class Cluster:
    """leaves, spines   slots of each switch, in jobs; 0: it cannot add
    hosts            of a rack
    host, up         bytes/s of a host's link, and of all of a leaf's links to the spines together
    """

    leaves: tuple[int, ...]
    spines: tuple[int, ...]
    hosts: int
    host: float
    up: float


@dataclass(frozen=True)
class Request:
    """A job: seconds of its arrival, ranks (a host each), bytes that it sums per iteration after `compute` seconds."""

    arrival: float
    ranks: int
    bytes: float
    compute: float
    iterations: int


@dataclass(frozen=True)
class Place:
    """Where a job runs: hosts by rack; the spine that adds (-1: none is needed); whether switches add."""

    hosts: tuple[int, ...]
    spine: int = -1
    added: bool = False

    @property
    def racks(self) -> list[int]:
        return [rack for rack, count in enumerate(self.hosts) if count]


@dataclass(frozen=True)
class Served:
    """What became of a job: when it began and ended, and where it ran."""

    begin: float
    end: float
    place: Place


@dataclass
class Free:
    """What is free: hosts by rack, slots by leaf and by spine."""

    hosts: Integers
    leaves: Integers
    spines: Integers

    def take(self, place: Place, sign: int = 1) -> None:
        self.hosts -= sign * np.array(place.hosts)
        if place.added:
            self.leaves[place.racks] -= sign
            if place.spine >= 0:
                self.spines[place.spine] -= sign


Policy = Callable[[Sequence[Request], Free, Cluster], Mapping[int, tuple[int, ...]]]
"""Hosts by rack for those of the waiting jobs that begin now, by their place in the queue."""


def serve(requests: Sequence[Request], cluster: Cluster, policy: str) -> list[Served]:
    """All jobs, simulated. Raises ValueError for a job with more ranks than the cluster has hosts."""
    if any(one.ranks > cluster.hosts * len(cluster.leaves) for one in requests):
        raise ValueError("a job has more ranks than the cluster has hosts")
    free = Free(
        np.full(len(cluster.leaves), cluster.hosts, np.int64), np.array(cluster.leaves), np.array(cluster.spines)
    )
    order = sorted(range(len(requests)), key=lambda job: requests[job].arrival)
    waiting, running, left = list[int](), dict[int, Place](), dict[int, float]()
    begun, found, now = dict[int, float](), dict[int, Served](), 0.0
    while order or waiting or running:
        speed = _iterations_per_second(requests, running, cluster)
        ends = {job: now + left[job] / speed[job] for job in running}
        soonest = min(ends.values(), default=float("inf"))
        after = min(soonest, requests[order[0]].arrival if order else float("inf"))
        left = {job: left[job] - (after - now) * speed[job] for job in running}
        now = after
        for job in [job for job, end in ends.items() if end <= now * (1 + 1e-12)]:
            place = running.pop(job)
            free.take(place, -1)
            found[job] = Served(begun[job], now, place)
        while order and requests[order[0]].arrival <= now:
            waiting.append(order.pop(0))
        asked = [requests[job] for job in waiting]
        begins = POLICIES[policy](asked, free, cluster)
        placed = _with_switches({waiting[number]: hosts for number, hosts in begins.items()}, free, cluster)
        for job, place in placed.items():
            free.take(place)
            running[job], left[job], begun[job] = place, float(requests[job].iterations), now
        waiting = [job for job in waiting if job not in placed]
    return [found[job] for job in range(len(requests))]


def over_spines(served: Sequence[Served]) -> float:
    """Bytes that cross a rack's links by byte of gradients, on average over jobs and their racks."""
    return float(np.mean([_loads(one.place, len(one.place.hosts))[1].max() for one in served]))


def _packed(asked: Sequence[Request], free: Free, cluster: Cluster) -> Mapping[int, tuple[int, ...]]:
    hosts, found = free.hosts.copy(), dict[int, tuple[int, ...]]()
    for number, request in enumerate(asked):
        if request.ranks > hosts.sum():
            continue
        roomy = [rack for rack in range(len(hosts)) if hosts[rack] >= request.ranks]
        order = sorted(roomy, key=lambda rack: int(hosts[rack])) or list(np.argsort(-hosts, kind="stable"))
        found[number] = _filled(order, request.ranks, hosts)
        hosts -= np.array(found[number])
    return found


def _spread(asked: Sequence[Request], free: Free, cluster: Cluster) -> Mapping[int, tuple[int, ...]]:
    hosts, found = free.hosts.copy(), dict[int, tuple[int, ...]]()
    for number, request in enumerate(asked):
        if request.ranks > hosts.sum():
            continue
        own = np.zeros_like(hosts)
        for _ in range(request.ranks):
            own[int((hosts - own).argmax())] += 1
        found[number] = tuple(own.tolist())
        hosts -= own
    return found


def _hire(asked: Sequence[Request], free: Free, cluster: Cluster) -> Mapping[int, tuple[int, ...]]:
    """A round of the flow, as long as it begins jobs: slots and hosts that it takes change what is left for others."""
    left, found = Free(free.hosts.copy(), free.leaves.copy(), free.spines.copy()), dict[int, tuple[int, ...]]()
    while waits := [number for number in range(len(asked)) if number not in found]:
        ranks = np.array([asked[number].ranks for number in waits])
        short = 1 - np.minimum(1.0, left.hosts / ranks[:, None])  # of room for the whole job
        used = 1 - left.leaves / np.maximum(1, np.array(cluster.leaves))
        cost = _SPREAD * short + np.where(left.leaves > 0, _SPREAD / 2 * used, _NO_SLOT)
        flow = _flow(ranks, left.hosts, cost)
        whole = np.flatnonzero(flow.sum(axis=1) == ranks).tolist()
        if not whole:
            break
        row = min(whole, key=lambda row: (np.count_nonzero(flow[row]), row))  # the others are asked once more
        place = Place(tuple(flow[row].tolist()))
        found[waits[row]] = place.hosts
        left.hosts -= np.array(place.hosts)
        if (left.leaves[place.racks] > 0).all():
            left.leaves[place.racks] -= 1
    return found


def _filled(order: Sequence[int], ranks: int, hosts: Integers) -> tuple[int, ...]:
    """So many ranks in the first of these racks that have room."""
    own = np.zeros_like(hosts)
    for rack in order:
        own[rack] = min(ranks, hosts[rack])
        ranks -= int(own[rack])
    return tuple(own.tolist())


def _flow(supplies: Integers, room: Integers, cost: Doubles) -> Integers:
    """Units from each row to each column, of which as many as possible flow, at the least cost."""
    from scipy.optimize import linprog
    from scipy.sparse import eye_array, kron, vstack

    rows, columns = cost.shape
    of_rows = kron(eye_array(rows), np.ones((1, columns)))
    of_columns = kron(np.ones((1, rows)), eye_array(columns))
    solved = linprog(
        (cost - _POSTPONED).ravel(), A_ub=vstack([of_rows, of_columns]), b_ub=np.concatenate([supplies, room]),
        bounds=(0, None), method="highs-ds",
    )  # fmt: skip
    units: Integers = np.rint(solved.x).astype(np.int64).reshape(rows, columns)
    return units


def _with_switches(begins: Mapping[int, tuple[int, ...]], free: Free, cluster: Cluster) -> dict[int, Place]:
    """The jobs' places: switches add where leaves have slots, and a spine has, if one is needed; spines by a flow, in
    which a slot costs more the fewer a spine has left."""
    leaves, able = free.leaves.copy(), list[int]()
    for job, hosts in begins.items():
        racks = Place(hosts).racks
        if (leaves[racks] > 0).all():
            leaves[racks] -= 1
            able.append(job)
    wide = [job for job in able if len(Place(begins[job]).racks) > 1]
    spines = dict.fromkeys(begins, -1)
    if wide:
        used = 1 - free.spines / np.maximum(1, np.array(cluster.spines))
        flow = _flow(np.ones(len(wide), np.int64), free.spines, np.broadcast_to(used, (len(wide), len(used))))
        spines |= {job: int(row.argmax()) if row.any() else -1 for job, row in zip(wide, flow, strict=True)}
    return {
        job: Place(hosts, spines[job], job in able and (spines[job] >= 0 or job not in wide))
        for job, hosts in begins.items()
    }


def _loads(place: Place, racks: int) -> tuple[float, Doubles]:
    """Bytes over each of its hosts' links, and over racks' links to the spines, by byte of gradients."""
    ranks, up = sum(place.hosts), np.zeros(racks)
    each = 1.0 if place.added else 2 * (ranks - 1) / ranks
    if len(place.racks) > 1:
        up[place.racks] = each
    return each, up


def _iterations_per_second(
    requests: Sequence[Request], running: Mapping[int, Place], cluster: Cluster
) -> dict[int, float]:
    """Links are shared max-min fairly, by progressive filling."""
    racks = len(cluster.leaves)
    loads = {job: _loads(place, racks) for job, place in running.items()}
    room, rate, growing = np.full(racks, cluster.up), dict.fromkeys(running, 0.0), set(running)
    while growing:
        up = sum((loads[job][1] for job in growing), np.zeros(racks))
        with np.errstate(divide="ignore"):
            steps = np.where(up > 1e-12, room / np.maximum(up, 1e-12), np.inf)
        alone = {job: cluster.host / max(1e-12, loads[job][0]) - rate[job] for job in growing}
        step = min(float(steps.min()), *alone.values())
        full = steps <= step * (1 + 1e-9)
        for job in growing:
            rate[job] += step
        room = np.maximum(0.0, room - step * up)
        growing = {
            job for job in growing
            if alone[job] > step * (1 + 1e-9) and not (loads[job][1][full] > 0).any()
        }  # fmt: skip
    return {job: 1 / (requests[job].compute + requests[job].bytes / rate[job]) for job in running}


POLICIES: Mapping[str, Policy] = MappingProxyType({"packed": _packed, "spread": _spread, "hire": _hire})
