"""Flows: the elementary input and output of a simulation. The core is in csrc/solve/simulate/.

    flow 0  [=====]··▶           latency: paid after the last byte has left
    flow 1         [===]··▶      after_left 0: a lane sends one message after another
    flow 2            [===]··▶   after 0: forwards what has arrived

Links are shared max-min fairly among the flows that are active at a moment (Bertsekas and Gallager, "Data Networks",
6.5.2): no flow can gain without taking from one with a lower rate. A flow streams through all links of its path at once
at one rate. A flow without bytes, or on a path without links, takes only its latency. Simultaneous events are processed
together: all flows that start or leave at a moment, before links are shared anew; path choices go by flow number. Equal
inputs give equal results, bit for bit.

Columns hold one entry per flow unless said otherwise; a column `x_offset` of k + 1 entries cuts column `x` into k
pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntony.base.columns import Columns, Float64, Int32, Int64, UInt8

Floats = NDArray[np.float64]
Integers = NDArray[np.signedinteger]


class PathPolicy(IntEnum):
    """How a flow chooses among the paths of its set when it starts."""

    fixed = 0
    """The first path."""
    spray = 1
    """An equal part of the bytes over every path, all parts at one rate; a path listed twice takes two parts."""
    least_loaded = 2
    """The path whose worst link has the least load, then the one with the least total load, then the first. The load of
    a link: the bytes of flows that have started on it and not left, over its capacity."""


@dataclass(frozen=True, eq=False)
class Paths(Columns):
    """Sets of paths over links.

    set_offset   (S+1,)  set s is the paths set_offset[s] .. set_offset[s+1], at least one
    path_offset  (P+1,)  path p is the links link[path_offset[p]:path_offset[p+1]]
    link         links, flat
    weight       beside `link`: the bytes that the link carries per byte of the flow; 1 for a plain path
    """

    set_offset: Int64
    path_offset: Int64
    link: Int32
    weight: Float64

    @staticmethod
    def of(sets: Sequence[Sequence[Sequence[int]]]) -> Paths:
        """From lists: per set its paths, per path its links; weights are 1."""
        paths = [path for choices in sets for path in choices]
        links = [link for path in paths for link in path]
        set_offset = _offsets([len(choices) for choices in sets])
        return Paths(set_offset, _offsets([len(path) for path in paths]), np.asarray(links, np.int32), _ones(links))

    @staticmethod
    def single(path_offset: ArrayLike, link: ArrayLike) -> Paths:
        """Sets of one path each, from the columns of the paths; weights are 1."""
        offset = np.asarray(path_offset, np.int64)
        links = np.asarray(link, np.int32)
        return Paths(np.arange(len(offset)), offset, links, _ones(links))

    def links(self, path: int) -> tuple[int, ...]:
        """The links of a path."""
        return tuple(self.link[self.path_offset[path] : self.path_offset[path + 1]].tolist())

    def all_links(self) -> list[tuple[int, ...]]:
        """The links of every path."""
        links, offset = self.link.tolist(), self.path_offset.tolist()
        return [tuple(links[first:end]) for first, end in pairwise(offset)]


@dataclass(frozen=True, eq=False)
class Flows(Columns):
    """The input of a simulation. The constructor checks only lengths that NumPy needs; `simulate_flows` rejects
    inconsistent columns (ValueError, naming column and row).

    bytes              float64 (n,)
    latency            float64 (n,)    seconds from the last byte's departure to the arrival: the sum of alphas
    release            float64 (n,)    earliest start in seconds
    after_offset       int64 (n+1,)    flow f starts once all of after[after_offset[f]:after_offset[f+1]] have arrived,
    after              int32
    after_left_offset  int64 (n+1,)    and all of after_left[..] have left
    after_left         int32
    set                int32 (n,)      its set of `paths`
    policy             uint8 (n,)      PathPolicy
    job                int32 (n,)      its owner; ignored by the simulation
    paths              Paths
    capacity           float64 (L,)    bytes/s of every link
    """

    bytes: Float64
    latency: Float64
    release: Float64
    after_offset: Int64
    after: Int32
    after_left_offset: Int64
    after_left: Int32
    set: Int32
    policy: UInt8
    job: Int32
    paths: Paths
    capacity: Float64

    def __len__(self) -> int:
        return len(self.bytes)

    @staticmethod
    def make(
        paths: Paths,
        capacity: ArrayLike,
        bytes: ArrayLike,
        *,
        latency: ArrayLike = 0.0,
        release: ArrayLike = 0.0,
        set: ArrayLike | None = None,
        policy: ArrayLike = PathPolicy.fixed,
        job: ArrayLike = 0,
        after: Sequence[Sequence[int]] | tuple[Integers, Integers] | None = None,
        after_left: Sequence[Sequence[int]] | tuple[Integers, Integers] | None = None,
    ) -> Flows:
        """Flows with the usual defaults: nothing to wait for, flow f takes the path of set f.

        Scalars stand for constant columns. `after` and `after_left` are lists of flows, one per flow, or the pair
        (offset, flat column).
        """
        chosen = np.arange(len(paths.set_offset) - 1) if set is None else np.asarray(set)
        amounts, chosen = np.broadcast_arrays(np.asarray(bytes, np.float64), np.atleast_1d(chosen))
        count = len(amounts)
        after_offset, awaited = _columns_of(after, count)
        after_left_offset, awaited_left = _columns_of(after_left, count)
        return Flows(
            amounts,
            np.broadcast_to(np.asarray(latency, np.float64), count),
            np.broadcast_to(np.asarray(release, np.float64), count),
            after_offset,
            awaited,
            after_left_offset,
            awaited_left,
            chosen,
            np.broadcast_to(np.asarray(policy, np.uint8), count),
            np.broadcast_to(np.asarray(job, np.int32), count),
            paths,
            np.asarray(capacity, np.float64),
        )


@dataclass(frozen=True, eq=False)
class FlowTimes:
    """The times of flows in seconds. Infinite for a flow that never starts, because its waits form a cycle.

    start, left, arrival  float64 (n,)  its first byte starts, its last byte has left, it has arrived
    path                  int32 (n,)    the path that it took (an index in `Paths`); -1 if it took several or none
    times, link, rate     (k,)          on request, by time: from times[i] on, link[i] carries rate[i] bytes/s
    """

    start: Floats
    left: Floats
    arrival: Floats
    path: Integers
    times: Floats
    link: Integers
    rate: Floats

    @cached_property
    def seconds(self) -> float:
        """The end of the simulation."""
        return float(self.arrival.max(initial=0.0))


def simulate_flows(flows: Flows, *, timeline: bool = False) -> FlowTimes:
    """Simulates the flows; `timeline` requests the rates of links over time. Raises ValueError if columns are
    inconsistent."""
    from syntony import _solve

    return FlowTimes(**_solve.simulate_flows(flows, timeline))


def cut(waiter: Integers, awaited: Integers, count: int) -> tuple[Integers, Integers]:
    """Pairs of a flow below `count` and one that it waits for, as an offset column and a flat one."""
    order = np.argsort(waiter, kind="stable")
    offset = np.concatenate(([0], np.cumsum(np.bincount(waiter, minlength=count))))
    return offset, awaited[order]


def _offsets(lengths: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def _ones(links: Sequence[int] | Integers) -> Floats:
    return np.ones(len(links))


def _columns_of(
    waits: Sequence[Sequence[int]] | tuple[Integers, Integers] | None, count: int
) -> tuple[Integers, Integers]:
    if waits is None:
        return np.zeros(count + 1, np.int64), np.zeros(0, np.int32)
    if isinstance(waits, tuple):
        return waits
    return _offsets([len(some) for some in waits]), np.asarray([flow for some in waits for flow in some], np.int32)
