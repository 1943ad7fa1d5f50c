"""Orders the transfers of a schedule, by urgency or at the pace of a pipeline, and stores the order as steps.

    by urgency   the transfer with the longest remaining path first, on exclusively used links
                 (csrc/solve/simulate/list_schedule.hpp)
    at pace      slice 0 of every transfer as soon as it can begin; slice i, i turns later

The times at which transfers begin, for one size, become their steps, which are the order of lanes for every size.

If chunks are slices of larger ones, each slice may be due slightly later than the one before: by the time for which the
busiest link is busy with a slice (a turn). So an all_reduce copies its first slices while it still sums the last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syntony._solve import list_schedule
from syntony.base.rows import pieces
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.simulation.moves import moves_of, waits_of
from syntony.synth.symmetry.groups import expand

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ordering:
    """Orders of a schedule for `size` bytes. Each is the whole schedule with other steps; bounds and proof stay."""

    schedule: Schedule
    size: int

    def by_urgency(self, due: Floats | None = None) -> Schedule:
        """Steps by list scheduling.

        due   by chunk, when it is due: 0 at once, 1 when the busiest link has carried everything. Default: all at once
        """
        tasks = self._tasks
        return self._ordered(tasks if due is None else replace(tasks, lag=self._by_transfer(due) * tasks.busiest))

    def at_pace(self, due: Floats, slices: int) -> Schedule:
        """Steps that make no lane wait; the heaviest chunks are `slices` ones, each `due` a turn after the one before
        (see `by_urgency`)."""
        tasks = self._tasks
        turn = np.zeros(len(tasks.latency))
        turn[: tasks.transfers] = tasks.busiest / slices  # a slice shares its links with other lanes'
        nowhere = np.full(len(tasks.route), len(tasks.offset) - 2, np.int32)
        return self._ordered(replace(tasks, route=nowhere, latency=tasks.latency + turn), due)

    @cached_property
    def _whole(self) -> Schedule:
        return expand(self.schedule)

    @cached_property
    def _tasks(self) -> _Tasks:
        return _Tasks.of(self._whole, self.size)

    def _by_transfer(self, due: Floats) -> Floats:
        """Of every task: what its chunk's is; 0 for sums."""
        found = np.zeros(len(self._tasks.lag))
        found[: self._tasks.transfers] = due[self._whole.values.chunk[self._whole.transfers.value]]
        return found

    def _ordered(self, tasks: _Tasks, later: Floats | None = None) -> Schedule:
        """By the times of the tasks; `later`: by chunk, how many times as long as the busiest link is busy."""
        if not tasks.transfers:
            return self._whole
        start, depth = tasks.times()
        if later is not None:
            start = start + self._by_transfer(later)[: tasks.transfers] * tasks.busiest
        return _ordered(self._whole, start, depth)


def by_urgency(schedule: Schedule, size: int) -> Schedule:
    """The whole schedule, the most urgent transfers first; see `Ordering`."""
    return Ordering(schedule, size).by_urgency()


def _ordered(whole: Schedule, start: Floats, depth: NDArray[np.int32]) -> Schedule:
    """Transfers by start. A transfer starts later than those it waits for; if neither alpha nor bytes take time, its
    position in the chain decides."""
    moved = whole.transfers
    order = np.lexsort((depth, start))
    later = (np.diff(start[order]) > 0) | (np.diff(depth[order]) > 0)
    hops = np.diff(moved.offset)[order]
    return replace(
        whole,
        transfers=Transfers(
            moved.value[order],
            moved.result[order],
            moved.src[order],
            moved.dst[order],
            np.r_[0, np.cumsum(later)],
            np.r_[0, np.cumsum(hops)],
            pieces(moved.link, moved.offset[:-1][order], hops),
        ),
        rounds=np.zeros(0, np.int32),
    )


@dataclass(frozen=True, eq=False)
class _Tasks:
    """The columns of Tasks (csrc/solve/simulate/list_schedule.hpp): the transfers, then the sums of what they deliver.

    route       lanes, and last one without links, for sums
    transfers   their number
    busiest     seconds for which the busiest link is busy
    """

    links: int
    seconds: Floats
    latency: Floats
    lag: Floats
    route: NDArray[np.int32]
    offset: NDArray[np.int64]
    link: NDArray[np.int32]
    waiter: NDArray[np.int64]
    awaited: NDArray[np.int64]
    transfers: int
    busiest: float

    @staticmethod
    def of(schedule: Schedule, size: int) -> _Tasks:
        moves, moved, links = moves_of(schedule), schedule.transfers, schedule.topology.links
        waiter, awaited, sums = waits_of(moves, schedule.collective)
        bandwidth = np.asarray([float(link.bandwidth) for link in links])
        carried = schedule.collective.bytes_of_chunks(size)[schedule.values.chunk[moved.value]]
        _, first = np.unique(moves.lane, return_index=True)
        hops = np.diff(moved.offset)[first]
        link = pieces(moved.link, moved.offset[first], hops)
        narrowest = np.full(len(first), np.inf)
        np.minimum.at(narrowest, np.repeat(np.arange(len(first)), hops), bandwidth[link])
        seconds = carried / narrowest[moves.lane]
        busy = np.bincount(link, np.repeat(np.bincount(moves.lane, seconds), hops), len(links))
        nothing = np.zeros(sums)
        return _Tasks(
            len(links),
            np.r_[seconds, nothing],
            np.r_[moves.latency[moves.path], nothing],
            np.zeros(len(moves) + sums),
            np.r_[moves.lane, np.full(sums, len(first))].astype(np.int32),
            np.r_[0, np.cumsum(np.r_[hops, 0])],
            link.astype(np.int32),
            waiter.astype(np.int64),
            awaited.astype(np.int64),
            len(moves),
            float(busy.max(initial=0.0)),
        )

    def times(self) -> tuple[Floats, NDArray[np.int32]]:
        """The start of every transfer, in seconds, and its depth in a chain."""
        found = list_schedule(self)
        return found["start"][: self.transfers], found["depth"][: self.transfers]
