"""How a lap is timed."""

from __future__ import annotations

import time

import numpy as np

from syntony.benchmarks.bench import contenders
from syntony.benchmarks.bench.measurement import Memory, by_clock, by_clock_written, local_measurement
from syntony.benchmarks.runtime.measured.sweep import case_of


class _Spoils:
    """A contender that says what it was given, and leaves something else."""

    label = "spoils"

    def __init__(self) -> None:
        self.given: list[float] = []

    def prepare(self, test: contenders.Test) -> contenders.Call:
        def call() -> None:
            self.given.append(float(test.send.sum()))
            test.send[:] = np.nan

        return call

    def barrier(self) -> object:
        return None

    def close(self) -> None: ...


def test_fresh_inputs_are_whole_before_every_iteration() -> None:
    contender, memory = _Spoils(), Memory(0, 1)
    measurement = local_measurement(contender, memory, case_of("all_reduce", 4096, 1), in_place=False)
    assert measurement is not None
    measurement.test.send[:] = 3.0
    assert len(measurement.lap(0, 5, fresh=True)) == 5
    assert contender.given == [3.0 * 1024] * 5
    assert len(measurement.lap(0, 2)) == 2
    assert np.isnan(contender.given[-1]), "without, what the last call has left is what the next one gets"


def test_what_writing_takes_alone_is_left_out() -> None:
    def write() -> None:
        time.sleep(0.01)

    calls: list[int] = []
    durations = by_clock_written(write, lambda: calls.append(1), 2, 5)
    assert (len(durations), len(calls)) == (5, 7)
    assert all(duration >= 0 for duration in durations)
    assert sorted(durations)[2] < sorted(by_clock(write, 5))[2]
