"""A table of the synthesizer: rows that are made while it is printed, and whether they reached their goal.

The one rule: a schedule is checked before its time is printed. `timed` and `Stopwatch` see to that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.synthesis.execution import execute
from synth.checker import check_schedule
from synth.counted import counted
from synth.schedule import Schedule


@dataclass(frozen=True)
class Row:
    """Cells in the order of the part's columns, and what they tell of.

    missed     which goal it fell short of, in a few words; empty: none
    schedules  proven; they are run on local processes where that is asked for
    """

    cells: tuple[object, ...]
    missed: str = ""
    schedules: tuple[Schedule, ...] = ()


@dataclass(frozen=True)
class Part:
    """Rows of one form.

    columns  heading and width of each; a negative width flushes left
    rows     makes them, one after another
    closing  lines to print behind them, from all of them
    """

    title: str
    columns: tuple[tuple[str, int], ...]
    rows: Callable[[], Iterator[Row]]
    closing: Callable[[Sequence[Row]], list[str]] = lambda rows: []


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
    good = True
    for part in table.parts:
        print(f"\n{part.title}\n")
        print(_line([heading for heading, _ in part.columns], part))
        rows = []
        for row in part.rows():
            rows.append(row)
            missed = f"  MISSED: {row.missed}" if row.missed else ""
            done = sum(execute(schedule) for schedule in row.schedules) if run else 0
            ran = f"  run bit-exact: {counted(done, 'schedule')}" if done else ""
            print(_line(row.cells, part) + missed + ran, flush=True)
        for line in part.closing(rows):
            print(line)
        good = good and not any(row.missed for row in rows)
    return good


def _line(cells: Sequence[object], part: Part) -> str:
    columns = zip(cells, part.columns, strict=True)
    text = (f"{cell!s:<{-width}}" if width < 0 else f"{cell!s:>{width}}" for cell, (_, width) in columns)
    return "  ".join(text).rstrip()
