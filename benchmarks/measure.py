"""Checks and times one row of the table, on every rank at once.

All contenders of a row use the same memory. First each is run once on fresh data and its result compared with the
reference; then they are timed in turns (a few iterations of one, a few of the next, and round again), so that whatever
else the machine is doing hits all of them alike.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.contenders import Call, Contender, Test
from benchmarks.elements import Array, Element
from benchmarks.reference import Reference, fill, wrong_elements
from benchmarks.shapes import Shape
from collectives.launch import Exchange

_GUARD = 256  # bytes behind each buffer that nobody may touch
_GUARD_BYTE = 0xA5
_TURNS = 4


@dataclass(frozen=True)
class Case:
    """One row to be: `block` elements of `element` per block."""

    shape: Shape
    element: Element
    operation: str | None
    root: int
    block: int

    def bytes_moved(self, ranks: int) -> int:
        """What the table calls the size: the larger buffer, in bytes."""
        return max(self.shape.counts(self.block, ranks)) * self.element.item_bytes


@dataclass(frozen=True)
class Effort:
    """How hard to try. `average`: how ranks' times become one (0 rank 0, 1 mean, 2 min, 3 max)."""

    iterations: int = 20
    warmups: int = 1
    checks: int = 1
    skip: int = 0  # iterations left out of the per-iteration statistics
    average: int = 1


@dataclass(frozen=True)
class Timing:
    """Times of one contender in one form, in seconds; `wrong` counts elements on all ranks, None when unchecked."""

    mean: float
    p50: float
    p99: float
    least: float
    most: float
    variation: float  # standard deviation / mean
    wrong: int | None


@dataclass(frozen=True)
class Result:
    """One contender's cells of a row; a form that it does not have is None."""

    label: str
    out_of_place: Timing | None
    in_place: Timing | None

    @property
    def best_form(self) -> Timing | None:
        """Out of place where both exist."""
        return self.out_of_place or self.in_place


class Bench:
    """One rank's memory and its way to the others. All methods are collective."""

    def __init__(self, exchange: Exchange, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._exchange = exchange
        self._clock = clock
        self._meetings = 0
        self._memory = (np.empty(0, np.uint8), np.empty(0, np.uint8))

    def run(
        self,
        case: Case,
        contenders: Sequence[Contender],
        effort: Effort,
        forms: Sequence[bool] = (False, True),
    ) -> list[Result]:
        """Measures `case` for every contender, in the given order. `forms`: in place (True), out of place (False)."""
        entries = [
            (contender, in_place, call, test)
            for contender in contenders
            for in_place in forms
            if (test := self._test(case, in_place)) is not None and (call := contender.prepare(test)) is not None
        ]
        reference = Reference(case.element, case.operation, self._exchange.size)
        wrong = [self._check(case, test, call, reference, effort.checks) for _, _, call, test in entries]
        durations = self._time([(contender, call) for contender, _, call, _ in entries], effort)
        timings = self._combine(durations, wrong, effort)
        found = {
            (contender.label, in_place): t for (contender, in_place, _, _), t in zip(entries, timings, strict=True)
        }
        return [Result(c.label, found.get((c.label, False)), found.get((c.label, True))) for c in contenders]

    def gather(self, value: object) -> list[Any]:
        """Everybody's JSON value, in rank order."""
        self._meetings += 1
        blobs = self._exchange.all_gather(f"bench {self._meetings}", json.dumps(value).encode())
        return [json.loads(blob) for blob in blobs]

    # ---- memory ------------------------------------------------------------------------------------------------------
    def _test(self, case: Case, in_place: bool) -> Test | None:
        """The buffers of one form, or None where the collective has no such form."""
        if in_place and case.shape.in_place is None:
            return None
        rank, size = self._exchange.rank, self._exchange.size
        counts = case.shape.counts(case.block, size)
        send, recv = (self._take(side, count, case.element) for side, count in enumerate(counts))
        if in_place and case.shape.in_place == "same":
            send = recv
        elif in_place and (not case.shape.rooted or rank == case.root):
            own = slice(rank * case.block, (rank + 1) * case.block)
            send, recv = (send, send[own]) if case.shape.sends_blocks else (recv[own], recv)
        return Test(case.shape, case.element, case.operation, case.root, send, recv, in_place)

    def _take(self, side: int, count: int, element: Element) -> Array:
        needed = count * element.item_bytes
        if self._memory[side].size < needed + _GUARD:
            fresh = np.zeros(needed + _GUARD, np.uint8)
            self._memory = (fresh, self._memory[1]) if side == 0 else (self._memory[0], fresh)
        return self._memory[side][:needed].view(element.storage)

    # ---- checking ----------------------------------------------------------------------------------------------------
    def _check(self, case: Case, test: Test, call: Call, reference: Reference, checks: int) -> int | None:
        """Runs the call `checks` times on fresh data; wrong elements on this rank, None when unchecked."""
        if checks == 0:
            return None
        rank = self._exchange.rank
        sent = reference.sent(rank)
        guards = self._guards(case)
        wrong = 0
        for _ in range(checks):
            for memory in (test.recv.view(np.uint8), *guards):
                memory[:] = _GUARD_BYTE
            fill(test.send, sent)
            call()
            for piece in reference.expected(case.shape, rank, case.block, case.root):
                received = test.recv[piece.begin : piece.begin + case.block]
                wrong += wrong_elements(received, piece.period, piece.start)
            wrong += sum(int(np.count_nonzero(guard != _GUARD_BYTE)) for guard in guards)
        return wrong

    def _guards(self, case: Case) -> list[Array]:
        """The bytes right behind both buffers."""
        ends = [count * case.element.item_bytes for count in case.shape.counts(case.block, self._exchange.size)]
        return [memory[end : end + _GUARD] for memory, end in zip(self._memory, ends, strict=True)]

    # ---- timing ------------------------------------------------------------------------------------------------------
    def _time(self, entries: Sequence[tuple[Contender, Call]], effort: Effort) -> list[npt.NDArray[np.int64]]:
        """Nanoseconds of every iteration on this rank, per entry."""
        turns = min(_TURNS, effort.iterations)
        durations: list[list[int]] = [[] for _ in entries]
        for turn in range(turns):
            iterations = effort.iterations * (turn + 1) // turns - effort.iterations * turn // turns
            warmups = effort.warmups if turn == 0 else min(1, effort.warmups)
            for (contender, call), times in zip(entries, durations, strict=True):
                contender.barrier()
                for _ in range(warmups):
                    call()
                times.extend(self._iterate(call, iterations))
        return [np.array(times, np.int64) for times in durations]

    def _iterate(self, call: Call, iterations: int) -> list[int]:
        clock = self._clock
        stamps = [clock()]
        for _ in range(iterations):
            call()
            stamps.append(clock())
        return [after - before for before, after in pairwise(stamps)]

    def _combine(
        self, durations: Sequence[npt.NDArray[np.int64]], wrong: Sequence[int | None], effort: Effort
    ) -> list[Timing]:
        """One Timing per entry, the same on all ranks."""
        mine = [_statistics(times, count, effort.skip) for times, count in zip(durations, wrong, strict=True)]
        everybody = self.gather([asdict(timing) for timing in mine])
        return [
            _over_ranks([Timing(**answer[index]) for answer in everybody], effort.average) for index in range(len(mine))
        ]


def _statistics(nanoseconds: npt.NDArray[np.int64], wrong: int | None, skip: int) -> Timing:
    """The mean is over all iterations; the rest leaves out the first `skip`."""
    seconds = nanoseconds * 1e-9
    kept = seconds[skip:] if skip < seconds.size else seconds
    p50, p99 = np.percentile(kept, [50, 99])
    least, most, mean = float(kept.min()), float(kept.max()), float(kept.mean())
    variation = float(kept.std()) / mean if mean else 0.0
    return Timing(float(seconds.mean()), float(p50), float(p99), least, most, variation, wrong)


def _over_ranks(timings: Sequence[Timing], average: int) -> Timing:
    """The ranks' timings as one; wrong elements are added up."""
    one_of = (lambda values: values[0], lambda values: sum(values) / len(values), min, max)[average]
    wrongs = [timing.wrong for timing in timings if timing.wrong is not None]
    return Timing(
        mean=one_of([timing.mean for timing in timings]),
        p50=one_of([timing.p50 for timing in timings]),
        p99=one_of([timing.p99 for timing in timings]),
        least=min(timing.least for timing in timings),
        most=max(timing.most for timing in timings),
        variation=max(timing.variation for timing in timings),
        wrong=sum(wrongs) if wrongs else None,
    )
