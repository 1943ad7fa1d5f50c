"""One contender, one row, one form (in place or not), on one rank: checks it, then times it in laps.

`Memory` is used by every contender in a process; `LocalMeasurement` runs the call that such a contender has prepared. A
peer in separate processes has measurements that make those processes do the same (mpi/remote_peer.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Protocol

import numpy as np

from syntony.benchmarks.bench.contenders import Call, Contender, Test
from syntony.benchmarks.bench.elements import Array, Element
from syntony.benchmarks.bench.reference import Reference, fill, wrong_elements
from syntony.benchmarks.bench.shapes import Shape

_GUARD = 256  # bytes behind each buffer that must stay untouched
_GUARD_BYTE = 0xA5
_WRITES = 9  # at least, after as many: the first ones of a lap find other contenders' memory in the caches

Timer = Callable[[Call, int], list[int]]
"""Makes this many calls; returns the nanoseconds of each."""


def by_clock(call: Call, iterations: int) -> list[int]:
    """For calls that return when their work is done."""
    clock = time.perf_counter_ns
    stamps = [clock()]
    for _ in range(iterations):
        call()
        stamps.append(clock())
    return [after - before for before, after in pairwise(stamps)]


def by_clock_written(write: Call, call: Call, warmups: int, iterations: int) -> list[int]:
    """As by_clock, for calls whose input is written before each, those of the warm-up included.

    The time of writing without readers is measured first and subtracted. If writing takes longer because peers have
    read the input and have its lines in their caches, the difference is part of the call's cost.
    """
    writes = max(iterations, _WRITES)
    alone = median(by_clock(write, 2 * writes)[writes:])

    def written() -> None:
        write()
        call()

    by_clock(written, warmups)
    return [max(0, round(duration - alone)) for duration in by_clock(written, iterations)]


@dataclass(frozen=True)
class Case:
    """A row to measure: `block` elements of `element` per block."""

    shape: Shape
    element: Element
    operation: str | None
    root: int
    block: int

    def bytes_moved(self, ranks: int) -> int:
        """The size column of the table: the larger buffer, in bytes."""
        return max(self.shape.counts(self.block, ranks)) * self.element.item_bytes


class Measurement(Protocol):
    """All methods are collective."""

    def check(self, times: int) -> int | None:
        """Runs `times` on fresh data; returns wrong elements on this rank, None if unchecked."""
        ...

    def lap(self, warmups: int, iterations: int, fresh: bool = False) -> list[int]:
        """Nanoseconds of each iteration on this rank, after a barrier and `warmups`.

        `fresh`: every rank writes its input before each iteration, as an application does (by_clock_written).
        """
        ...


@dataclass(frozen=True)
class Place:
    """A buffer: `count` elements of a side of the Memory (0 send, 1 receive), from element `begin` on."""

    side: int
    begin: int
    count: int


def places(case: Case, in_place: bool, rank: int, ranks: int) -> tuple[Place, Place]:
    """The positions of the send and the receive buffer of `rank`."""
    send, recv = (Place(side, 0, count) for side, count in enumerate(case.shape.counts(case.block, ranks)))
    if in_place and case.shape.in_place == "same":
        return recv, recv
    if in_place and (not case.shape.rooted or rank == case.root):
        whole = send if case.shape.sends_blocks else recv
        own = Place(whole.side, rank * case.block, case.block)
        return (whole, own) if case.shape.sends_blocks else (own, whole)
    return send, recv


class Memory:
    """A send and a receive buffer, as large as any row has needed so far, each followed by a guard."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        self._sides = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    def test(self, case: Case, in_place: bool) -> Test | None:
        """The buffers of one form, or None if the collective lacks that form."""
        if in_place and case.shape.in_place is None:
            return None
        counts = case.shape.counts(case.block, self.ranks)
        sides = [self._take(side, count, case.element) for side, count in enumerate(counts)]
        send, recv = (
            sides[place.side][place.begin : place.begin + place.count]
            for place in places(case, in_place, self.rank, self.ranks)
        )
        return Test(case.shape, case.element, case.operation, case.root, send, recv, in_place)

    def allocate(self, side: int, size: int) -> Array:
        """Allocates ordinary memory of `size` bytes for a side."""
        del side
        return np.zeros(size, np.uint8)

    def hand_over(self) -> None:
        """Moves the buffers' content to where calls read it: here, it is already there."""

    def take_back(self) -> None:
        """Moves results of calls into the buffers."""

    def guards(self, case: Case) -> list[Array]:
        """The bytes right behind both buffers."""
        ends = [count * case.element.item_bytes for count in case.shape.counts(case.block, self.ranks)]
        return [memory[end : end + _GUARD] for memory, end in zip(self._sides, ends, strict=True)]

    def _take(self, side: int, count: int, element: Element) -> Array:
        needed = count * element.item_bytes
        if self._sides[side].size < needed + _GUARD:
            self._sides[side] = self.allocate(side, needed + _GUARD)
        return self._sides[side][:needed].view(element.storage)


def local_measurement(
    contender: Contender, memory: Memory, case: Case, in_place: bool, timer: Timer = by_clock
) -> LocalMeasurement | None:
    """None if the collective lacks that form, or the contender the operation."""
    test = memory.test(case, in_place)
    call = None if test is None else contender.prepare(test)
    return None if test is None or call is None else LocalMeasurement(contender, memory, case, test, call, timer)


@dataclass(frozen=True)
class LocalMeasurement:
    """A call in this process."""

    contender: Contender
    memory: Memory
    case: Case
    test: Test
    call: Call
    timer: Timer = by_clock

    def check(self, times: int) -> int | None:
        if times == 0:
            return None
        case, test, rank = self.case, self.test, self.memory.rank
        reference = Reference(case.element, case.operation, self.memory.ranks)
        sent = reference.sent(rank)
        guards = self.memory.guards(case)
        wrong = 0
        self.contender.barrier()
        for _ in range(times):
            for memory in (test.recv.view(np.uint8), *guards):
                memory[:] = _GUARD_BYTE
            fill(test.send, sent)
            self.memory.hand_over()
            self.call()
            self.memory.take_back()
            for piece in reference.expected(case.shape, rank, case.block, case.root):
                received = test.recv[piece.begin : piece.begin + case.block]
                wrong += wrong_elements(received, piece.period, piece.start)
            wrong += sum(int(np.count_nonzero(guard != _GUARD_BYTE)) for guard in guards)
        return wrong

    def lap(self, warmups: int, iterations: int, fresh: bool = False) -> list[int]:
        self.contender.barrier()
        if fresh:
            send = self.test.send
            return by_clock_written(partial(send.fill, send[0] if send.size else 0), self.call, warmups, iterations)
        for _ in range(warmups):
            self.call()
        return self.timer(self.call, iterations)
