"""A table of the synthesizer: rows that are made while it is printed, and whether they reached their goal.

The one rule: a schedule is checked before its time is printed. `timed` and `Stopwatch` see to that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from syntony.base.wording import counted
from syntony.benchmarks import goals
from syntony.benchmarks.goals import Part as Part
from syntony.benchmarks.synthesis.execution import execute
from syntony.synth.checker import check_schedule
from syntony.synth.model.schedule import Schedule


@dataclass(frozen=True)
class Row(goals.Row):
    """A row that tells of `schedules`: proven; they are run on local processes where that is asked for."""

    schedules: tuple[Schedule, ...] = ()


@dataclass(frozen=True)
class Table:
    """One table of the registry in __main__.py."""

    name: str
    summary: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Seconds:
    """Of wall clock, and of processor time in this process; on a machine with other work the second says more."""

    wall: float
    processor: float

    @property
    def cells(self) -> tuple[str, str]:
        """Both, as printed."""
        return f"{self.wall:.2f}", f"{self.processor:.2f}"


class WrongScheduleError(AssertionError):
    """An engine's schedule that the checker refuses: no time is printed for it."""


def timed(make: Callable[[], Schedule]) -> tuple[Schedule, Seconds]:
    """A schedule that the checker has proven, and what making it took. Raises WrongScheduleError."""
    watch = Stopwatch()
    schedule = make()
    return schedule, watch.stop(schedule)


class Stopwatch:
    """Runs from its creation, and tells the time only to those who have a schedule that the checker proves."""

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def read(self) -> Seconds:
        """For what the checker is no help with: who asks must check by other means, before anything is printed."""
        return Seconds(time.perf_counter() - self._wall, time.process_time() - self._processor)

    def stop(self, schedule: Schedule) -> Seconds:
        """What making the schedule took. Raises WrongScheduleError."""
        seconds = self.read()
        verdict = check_schedule(schedule)
        if not verdict:
            raise WrongScheduleError(f"engine {schedule.engine} made a schedule that is wrong: {verdict.fault}")
        return seconds


def show(table: Table, run: bool = False) -> bool:
    """Prints the table as its rows come; whether every row reached its goal.

    `run`: runs their schedules too, and says of how many (execution.py). Raises WrongResultError.
    """

    def remark(row: goals.Row) -> str:
        done = sum(execute(schedule) for schedule in row.schedules) if run and isinstance(row, Row) else 0
        return f"  run bit-exact: {counted(done, 'schedule')}" if done else ""

    return goals.show(table.parts, remark)
