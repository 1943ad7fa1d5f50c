"""Cuts the chunks of a Schedule into slices; each slice is one step behind the one before.

    slice 0   step 0 ──▶ 1 ──▶ 2 ──▶ 3
    slice 1          1 ──▶ 2 ──▶ 3 ──▶ 4

The number of slices is that of the heaviest chunk. A lighter chunk is cut into as few as are no longer, and each is due
with one of the heaviest chunk's:

    a chunk of weight 8    [  0  |  1  |  2  |  3  ]
    a chunk of weight 3    [ 0  ]      [ 2  ]
    a chunk of weight 1    [ 0 ]

The simulator (simulation/moves.py) and Programs (csrc/core/program/program.hpp) slice long messages themselves. Here
messages of any length are cut, and each slice may get separate steps afterwards (engines/pipeline/list_scheduling.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from syntony.base.rows import pieces
from syntony.synth.bounds.distance import latency
from syntony.synth.engines.pipeline.list_scheduling import Ordering
from syntony.synth.model.collective import ChunkTable
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.model.values import Values
from syntony.synth.symmetry.groups import expand

SLICES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Numbers of slices of the heaviest chunk that are tried, in this order."""
BEYOND = 16
"""Numbers of slices greater than this many times the best one so far are not tried."""
LEAST_BYTES = 1024
"""Bytes of a slice, at least."""
MOST_TRANSFERS = 40_000
"""Transfers of a sliced schedule, at most. The executor cuts what is longer anyway (csrc/core/program/program.hpp)."""

AS_CUT = "as cut"
"""The order of the schedule that is cut."""
TRIED = 3
"""Schedules on which an order is tried before it may be called dull."""
DULL = 1.1
"""An order is dull if it took more than this many times as long as the best order on each of these schedules."""

Integers = NDArray[np.signedinteger]
Orders = Mapping[str, Callable[[], Schedule]]
"""By name, schedules that differ in the order of their transfers; each is made when it is called."""


class Dull:
    """Which orders are not worth trying again: those that were slow each time."""

    def __init__(self) -> None:
        self._schedules = 0
        self._nearest: dict[str, float] = {}  # by order, its seconds over those of the best, where that was least

    def __contains__(self, order: str) -> bool:
        return self._schedules >= TRIED and self._nearest.get(order, 1.0) > DULL

    def hear(self, tried: Mapping[str, float]) -> None:
        """The seconds of a schedule in the orders that were tried, by name."""
        self._schedules += 1
        least = min(tried.values(), default=0.0)
        for order, seconds in tried.items():
            self._nearest[order] = min(self._nearest.get(order, np.inf), seconds / least if least else 1.0)


@dataclass(frozen=True, eq=False)
class Slices:
    """How the chunks of a table are cut.

    most    slices of the heaviest chunk
    number  of each chunk, a divisor of `most`
    """

    most: int
    number: Integers

    @staticmethod
    def of(chunks: ChunkTable, most: int) -> Slices:
        divisors = np.asarray([number for number in range(1, most + 1) if most % number == 0])
        weight = chunks.weight.astype(np.int64)
        least = np.searchsorted(divisors * weight.max(initial=1), most * weight)
        return Slices(most, divisors[least])

    def due(self, stages: int = 1) -> NDArray[np.float64]:
        """Of each slice, when it is due, from 0 to 1; groups of `stages` chunks follow each other, as slices do."""
        chunk, piece, _ = _copies(self.number)
        return (chunk % stages + piece / self.number[chunk]) / stages

    def transfers(self, whole: Schedule) -> int:
        """How many the schedule has once it is cut."""
        return int(self.number[whole.values.chunk[whole.transfers.value]].sum())


def streamed(schedule: Schedule, size: int, stages: int = 1) -> Iterator[tuple[int, Orders]]:
    """The schedule in several numbers of slices for `size` bytes, with its bounds but no proof, each in some orders.

    Numbers four times apart come first, those between them after: the best one is often large, and neighbours differ
    little. What a simulation costs ascends with the number: more than BEYOND times the best are hardly worth it.

    `stages`: groups of this many chunks of the schedule follow each other, as slices do.
    """
    if len(schedule.transfers) <= MOST_TRANSFERS:
        whole = expand(schedule)
        numbers = _numbers(whole, size, MOST_TRANSFERS)
        for slices in numbers[::2] + numbers[1::2]:
            cut = cache(partial(_ordering, whole, slices, size))
            yield slices.most, _all_orders(cut, slices, stages)


def glanced(schedule: Schedule, size: int, stages: int, transfers: int) -> Orders:
    """The schedule in about `transfers` transfers, in the orders that are most often the best."""
    whole = expand(schedule)
    slices = _numbers(whole, size, transfers)[-1]
    return _orders(cache(partial(_ordering, whole, slices, size)), slices, stages)


def _ordering(whole: Schedule, slices: Slices, size: int) -> Ordering:
    return Ordering(_cut(whole, slices), size)


def _orders(cut: Callable[[], Ordering], slices: Slices, stages: int) -> Orders:
    """Trees that share no link stream best at pace, one slice behind the other; if they share links, ordering by
    urgency is better."""
    orders: dict[str, Callable[[], Schedule]] = {AS_CUT: lambda: cut().schedule}
    if slices.most > 1:
        orders["at pace"] = lambda: cut().at_pace(slices.due(), slices.most)
        orders["slices by urgency"] = lambda: cut().by_urgency(slices.due())
    if stages > 1:
        orders["slices and stages by urgency"] = lambda: cut().by_urgency(slices.due(stages))
    return orders


def _all_orders(cut: Callable[[], Ordering], slices: Slices, stages: int) -> Orders:
    return {**_orders(cut, slices, stages), "by urgency": lambda: cut().by_urgency()}


def _numbers(whole: Schedule, size: int, transfers: int) -> list[Slices]:
    """The numbers of slices that are not too short, with at most so many transfers; whole chunks always."""
    most = max(1.0, float(whole.collective.bytes_of_chunks(size).max()) / LEAST_BYTES)
    cuts = [Slices.of(whole.collective.chunks, number) for number in SLICES if number <= most]
    return [cut for cut in cuts if cut.most == 1 or cut.transfers(whole) <= transfers]


def _cut(whole: Schedule, slices: Slices) -> Schedule:
    """In slices, with its bounds."""
    cut = _in_slices(whole, slices)
    if whole.bounds is None:
        return cut
    farthest = latency(Network(cut.topology, cut.collective))
    return replace(cut, bounds=replace(whole.bounds, latency=farthest))


def in_slices(schedule: Schedule, slices: int) -> Schedule:
    """The whole schedule with the heaviest chunks cut into `slices` equal ones. Bounds and proof are dropped.

    A rank gets a value through transfers of smaller steps only, in each slice as in the whole.
    """
    whole = expand(schedule)
    return _in_slices(whole, Slices.of(whole.collective.chunks, slices))


def _in_slices(whole: Schedule, slices: Slices) -> Schedule:
    chunks, values, moved = whole.collective.chunks, whole.values, whole.transfers
    chunk, _, first_slice = _copies(slices.number)
    value, piece, first = _copies(slices.number[values.chunk])  # of each new value, of which one, and which piece of it
    lengths = np.diff(values.offset)[value]
    operand = first[pieces(values.operand.astype(np.int64), values.offset[value], lengths)] + np.repeat(piece, lengths)
    number = slices.number[values.chunk[moved.value]]
    row, part, _ = _copies(number)
    step = moved.step[row].astype(np.int64) + part * (slices.most // number)[row]
    order = np.argsort(step, kind="stable")
    row, part = row[order], part[order]
    hops = np.diff(moved.offset)[row]
    return Schedule(
        whole.topology,
        replace(
            whole.collective,
            chunks=ChunkTable(chunks.block[chunk], chunks.weight[chunk] * (slices.most // slices.number)[chunk]),
        ),
        Values(
            first_slice[values.chunk[value]] + piece,
            values.rank[value],
            np.r_[0, np.cumsum(lengths)],
            operand,
        ),
        Transfers(
            first[moved.value[row]] + part,
            first[moved.result[row]] + part,
            moved.src[row],
            moved.dst[row],
            step[order],
            np.r_[0, np.cumsum(hops)],
            pieces(moved.link, moved.offset[row], hops),
        ),
        engine=whole.engine,
        number_format=whole.number_format,
    )


def _copies(number: Integers) -> tuple[Integers, Integers, Integers]:
    """Of rows that become `number` copies each: by copy, its row, and which copy of it; by row, its first copy."""
    first = np.cumsum(number) - number
    row = np.repeat(np.arange(len(number)), number)
    return row, np.arange(len(row)) - first[row], first
