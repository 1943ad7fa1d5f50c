"""Measures the wires between the ranks of a running group.

    pairs      a ──── s bytes ────▶ b      one pair and one direction at a time, growing messages
                 ◀──── 1 byte ────         seconds -> alpha, bandwidth (topologies/probed/fit.py)

    suspects   the pairs slower than their peers, again after a pause: repetitions of a few microseconds are all late
               if another process has the processor for some milliseconds, and only what stays slow is a finding

    crossings  {a, b} ═══▶ the others      all ranks of a cluster send to (then receive from) the others at once: do
                                           their messages have wires of their own?

All ranks walk through the same list; a rank with no part in a measurement sleeps in the barrier at its end.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from syntony.collectives.verbs import Verbs, Work
from syntony.topologies.probed.fit import fit
from syntony.topologies.probed.health import TOLERANCE, suspects
from syntony.topologies.probed.locality import Cluster, clusters
from syntony.topologies.probed.measurements import Crossing, Measurements

_SMALLEST = 8  # bytes
_SECOND = 1 << 14  # bytes of the first message large enough to tell bandwidth
_GROWTH = 4
_PAUSES = (0.1, 0.3, 0.9)  # seconds before suspects are measured again; a time slice is a hundredth of the first
_FAN_OUT = 8  # ranks that one rank talks to in a crossing; more would not change the result

_GO, _DATA, _DONE = 1, 2, 3  # tags


@dataclass(frozen=True)
class Effort:
    """`largest`: bytes of the largest message; `enough`: stop growing once a message takes this many seconds;
    `repeat`: repetitions per size."""

    largest: int = 4 << 20
    enough: float = 0.05
    repeat: int = 5


def probe(
    group: Verbs, hosts: Sequence[str], effort: Effort, tolerance: float = TOLERANCE
) -> tuple[Measurements, Cluster]:
    """All measurements that `topologies/probed` uses, the same on every rank. Collective. `hosts`: name per rank;
    `tolerance`: as of `examine`."""
    wires = _Pairs(group, tuple(hosts), effort)
    pairs = wires.measure(permutations(range(group.size), 2))
    root = clusters(pairs)
    for pause in _PAUSES:
        doubtful = suspects(pairs, root, tolerance)
        if not doubtful:
            break
        time.sleep(pause)
        pairs = wires.measure(doubtful)
        root = clusters(pairs)
    crossings = {}
    for cluster in root.walk():
        for part in cluster.parts:
            outside = [rank for rank in cluster.ranks if rank not in part.ranks]
            crossings[part.ranks] = _crossing(group, effort, pairs, part.ranks, outside)
    return Measurements(pairs.hosts, pairs.alpha, pairs.bandwidth, crossings), root


def pairs_of(group: Verbs, hosts: tuple[str, ...], effort: Effort) -> Measurements:
    """Only the pairs, one after another. Collective."""
    return _Pairs(group, hosts, effort).measure(permutations(range(group.size), 2))


class _Pairs:
    """One message at a time, from ranks to others. Whatever was measured before counts too."""

    def __init__(self, group: Verbs, hosts: tuple[str, ...], effort: Effort) -> None:
        self._group = group
        self._hosts = hosts
        self._effort = effort
        self._buffer = np.zeros(effort.largest, np.uint8)
        self._times: defaultdict[int, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        """By receiver and bytes: seconds of each repetition."""

    def measure(self, pairs: Iterable[tuple[int, int]]) -> Measurements:
        """Measures `pairs` of sender and receiver, and returns what is known of all pairs. Collective."""
        size = self._group.size
        for sender, receiver in pairs:
            if self._group.rank == sender:
                self._send(receiver)
            elif self._group.rank == receiver:
                self._answer(sender)
            self._group.barrier()
        mine = np.full((2, size), np.nan)
        for receiver, times in self._times.items():
            line = fit(times)
            mine[:, receiver] = line.latency / 2, line.bandwidth  # the answer takes half of the round trip
        rows = np.empty((size, 2, size))
        self._group.all_gather(mine, rows)
        return Measurements(self._hosts, rows[:, 0], rows[:, 1])

    def _sizes(self) -> Iterator[int]:
        yield _SMALLEST
        size = min(_SECOND, self._effort.largest // 2)
        while size < self._effort.largest:
            yield size
            size *= _GROWTH
        yield self._effort.largest

    def _send(self, receiver: int) -> None:
        """Announces each size, since only the sender knows when to stop; 0 ends it."""
        times = self._times[receiver]
        for number, size in enumerate(self._sizes()):
            self._announce(receiver, size)
            # The first is to warm up.
            times[size] += [self._one(receiver, size) for _ in range(self._effort.repeat + 1)][1:]
            if number >= 2 and min(times[size]) > self._effort.enough:
                break
        self._announce(receiver, 0)

    def _announce(self, receiver: int, size: int) -> None:
        self._group.send(np.asarray([size], np.int64), receiver, _GO)

    def _one(self, receiver: int, size: int) -> float:
        begin = time.perf_counter()
        self._group.send(self._buffer[:size], receiver, _DATA)
        self._group.recv(self._buffer[:1], receiver, _DONE)
        return time.perf_counter() - begin

    def _answer(self, sender: int) -> None:
        announced = np.zeros(1, np.int64)
        while True:
            self._group.recv(announced, sender, _GO)
            size = int(announced[0])
            if size == 0:
                return
            for _ in range(self._effort.repeat + 1):
                self._group.recv(self._buffer[:size], sender, _DATA)
                self._group.send(self._buffer[:1], sender, _DONE)


def _crossing(
    group: Verbs, effort: Effort, pairs: Measurements, inside: Sequence[int], outside: Sequence[int]
) -> Crossing:
    out = _traffic(inside, outside)
    into = [(receiver, sender) for sender, receiver in out]
    alone = sum(float(pairs.bandwidth[pair]) for pair in out)
    return Crossing(_together(group, effort, pairs, out), _together(group, effort, pairs, into), alone)


def _traffic(inside: Sequence[int], outside: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of sender and receiver: each rank inside sends to some ranks outside, spread evenly."""
    fan_out = min(len(outside), max(1, _FAN_OUT // len(inside)))
    stride = max(1, len(outside) // len(inside))
    return [
        (sender, outside[(number * stride + step) % len(outside)])
        for number, sender in enumerate(inside)
        for step in range(fan_out)
    ]


def _together(group: Verbs, effort: Effort, pairs: Measurements, traffic: list[tuple[int, int]]) -> float:
    """Bytes/s of all messages of `traffic` at once: the best repetition, each timed by its slowest rank."""
    lowest = min(float(pairs.bandwidth[pair]) for pair in traffic)
    size = int(np.clip(lowest * effort.enough, _SECOND, effort.largest))
    to = [receiver for sender, receiver in traffic if sender == group.rank]
    sources = [sender for sender, receiver in traffic if receiver == group.rank]
    data = np.zeros(size, np.uint8)
    incoming = np.zeros((len(sources), size), np.uint8)
    took = np.zeros(1)
    best = np.inf
    for _ in range(effort.repeat + 1):
        group.barrier()
        begin = time.perf_counter()
        works: list[Work | int | None] = [
            group.recv(incoming[i], source, _DATA, async_op=True) for i, source in enumerate(sources)
        ]
        works += [group.send(data, receiver, _DATA, async_op=True) for receiver in to]
        for work in works:
            assert isinstance(work, Work)
            work.wait()
        took[0] = time.perf_counter() - begin if sources else 0.0
        group.all_reduce(took, op="max")
        best = min(best, float(took[0]))
    return len(traffic) * size / best
