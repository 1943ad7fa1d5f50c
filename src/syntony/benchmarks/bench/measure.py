"""Checks and times one row of the table, on every rank at once.

All contenders in these processes use the same memory; remote peers have separate processes with as much memory. Each
first runs once on fresh data and its result is compared with the reference. Then they are timed in turns (a few
iterations of one, a few of the next, and round again), so that other load on the machine affects all of them alike.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from syntony.benchmarks.bench.contenders import Contender
from syntony.benchmarks.bench.measurement import Case, Measurement, Memory, Timer, by_clock, local_measurement
from syntony.benchmarks.mpi.remote_peer import RemotePeer
from syntony.collectives.bootstrap.launch import Exchange


@dataclass(frozen=True)
class Effort:
    """How much to measure. `average`: how the ranks' times are combined (0 rank 0, 1 mean, 2 min, 3 max)."""

    iterations: int = 20
    warmups: int = 1
    checks: int = 1
    skip: int = 0  # iterations left out of the per-iteration statistics
    average: int = 1
    turns: int = 4  # number of rounds over the contenders
    fresh: bool = False  # inputs are written before each iteration


@dataclass(frozen=True)
class Timing:
    """Times of one contender in one form, in seconds; `wrong` counts elements on all ranks, None if unchecked."""

    mean: float
    p50: float
    p99: float
    least: float
    most: float
    variation: float  # standard deviation / mean
    wrong: int | None


@dataclass(frozen=True)
class Result:
    """One contender's cells of a row; a missing form is None."""

    label: str
    out_of_place: Timing | None
    in_place: Timing | None

    @property
    def best_form(self) -> Timing | None:
        """The out-of-place form if both exist."""
        return self.out_of_place or self.in_place


class Bench:
    """One rank's memory and its connection to the others. All methods are collective."""

    def __init__(
        self,
        group: Exchange,
        memory: Memory | None = None,
        timer: Timer = by_clock,
        everybody: Exchange | None = None,
    ) -> None:
        """`memory`: the memory of contenders in these processes, by default ordinary memory. `everybody`: the ranks of
        all groups that measure at the same time, if there are several."""
        self._everybody = everybody or group
        self._together = self._everybody.size > group.size
        self._timer = timer
        self._meetings = 0
        self._memory = memory or Memory(group.rank, group.size)

    @property
    def rank(self) -> int:
        """Among the ranks of all groups."""
        return self._everybody.rank

    def run(
        self,
        case: Case,
        contenders: Sequence[Contender | RemotePeer],
        effort: Effort,
        forms: Sequence[bool] = (False, True),
    ) -> list[Result]:
        """Measures `case` for every contender, in the given order. `forms`: in place (True), out of place (False)."""
        entries = [
            (contender.label, in_place, measurement)
            for contender in contenders
            for in_place in forms
            if (measurement := self._measurement(contender, case, in_place)) is not None
        ]
        wrong = [measurement.check(effort.checks) for _, _, measurement in entries]
        durations = self._time([measurement for _, _, measurement in entries], effort)
        timings = self._combine(durations, wrong, effort)
        found = {(label, in_place): t for (label, in_place, _), t in zip(entries, timings, strict=True)}
        return [Result(c.label, found.get((c.label, False)), found.get((c.label, True))) for c in contenders]

    def gather(self, value: object) -> list[Any]:
        """The JSON values of all ranks, in rank order."""
        self._meetings += 1
        blobs = self._everybody.all_gather(f"bench {self._meetings}", json.dumps(value).encode())
        return [json.loads(blob) for blob in blobs]

    def _measurement(self, contender: Contender | RemotePeer, case: Case, in_place: bool) -> Measurement | None:
        if isinstance(contender, RemotePeer):
            return contender.measurement(case, in_place)
        return local_measurement(contender, self._memory, case, in_place, self._timer)

    def _time(self, measurements: Sequence[Measurement], effort: Effort) -> list[npt.NDArray[np.int64]]:
        """Nanoseconds of every iteration on this rank, per measurement."""
        turns = min(effort.turns, effort.iterations)
        durations: list[list[int]] = [[] for _ in measurements]
        for turn in range(turns):
            iterations = effort.iterations * (turn + 1) // turns - effort.iterations * turn // turns
            warmups = effort.warmups if turn == 0 else min(1, effort.warmups)
            for measurement, times in zip(measurements, durations, strict=True):
                if self._together:
                    self.gather(None)  # all groups measure the same contender
                times.extend(measurement.lap(warmups, iterations, effort.fresh))
        return [np.array(times, np.int64) for times in durations]

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
    """Combines the ranks' timings; wrong elements are added up."""
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
