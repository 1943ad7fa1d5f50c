"""A table of the synthesizer: rows that are made while it is printed, and whether they reached their goal.

The one rule: a schedule is checked before its time is printed. `timed` and `Stopwatch` see to that.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from syntony.base.wording import counted
from syntony.benchmarks import tables
from syntony.benchmarks.synthesis.execution import execute
from syntony.benchmarks.tables import Part, Table
from syntony.synth.checker import check_schedule
from syntony.synth.model.schedule import Schedule


@dataclass(frozen=True)
class Row(tables.Row):
    """A row that tells of `schedules`: proven; they are run on local processes where that is asked for."""

    schedules: tuple[Schedule, ...] = ()


def proven_table(name: str, summary: str, parts: tuple[Part, ...]) -> Table:
    """A table whose option --run also runs its rows' schedules (execution.py)."""

    def measured(options: argparse.Namespace) -> tuple[Part, ...]:
        return tuple(replace(part, rows=partial(_executed, part)) for part in parts) if options.run else parts

    return Table(name, summary, measured, _configure)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", action="store_true", help="also run every schedule of up to 16 ranks on processes")


def _executed(part: Part) -> Iterator[tables.Row]:
    """The rows, each saying how many of its schedules were run. Raises WrongResultError."""
    for row in part.rows():
        done = sum(execute(schedule) for schedule in row.schedules) if isinstance(row, Row) else 0
        yield replace(row, remark=f"run bit-exact: {counted(done, 'schedule')}") if done else row


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


def require_proven(schedule: Schedule) -> None:
    """Raises WrongScheduleError unless the checker proves it."""
    verdict = check_schedule(schedule)
    if not verdict:
        raise WrongScheduleError(f"engine {schedule.engine} made a schedule that is wrong: {verdict.fault}")


def timed(make: Callable[[], Schedule]) -> tuple[Schedule, Seconds]:
    """A schedule that the checker has proven, and what making it took. Raises WrongScheduleError."""
    watch = Stopwatch()
    schedule = make()
    return schedule, watch.stop(schedule)


class Stopwatch:
    """Runs from its creation; gives the time only for a schedule that the checker has proven."""

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def read(self) -> Seconds:
        """For what the checker cannot prove: the caller checks by other means, before anything is printed."""
        return Seconds(time.perf_counter() - self._wall, time.process_time() - self._processor)

    def stop(self, schedule: Schedule) -> Seconds:
        """What making the schedule took. Raises WrongScheduleError."""
        seconds = self.read()
        require_proven(schedule)
        return seconds
