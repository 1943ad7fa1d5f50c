"""Portfolio: for every size, the schedule with the shortest simulated time.

    size        1K          24K                1M                    1G
    fastest     |-- sccl ---|----- greedy -----|------ forest -------..       an entry each: a schedule, its last size

Engines run at sizes four times apart (those that do not depend on the size, once). All their schedules are simulated at
sizes twice apart, and the sizes at which the fastest one changes are found by bisection. A schedule is kept while it is
within KEEP of the fastest, so that few schedules are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from syntony.base.command import UserError
from syntony.synth.engines.auto import candidates, most_workers, seconds_at
from syntony.synth.engines.engine import Budget, OutOfTimeError
from syntony.synth.engines.registry import ENGINES
from syntony.synth.engines.workers import Workers
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.topologies.topology import Topology

KEEP = 1.01
"""A schedule within 1 % of the fastest one is good enough."""
EXACT = 1.02
"""The size at which one schedule follows another is searched to within 2 %."""


@dataclass(frozen=True)
class Entry:
    """A schedule, and the largest size for which it is used (bytes; None: no limit)."""

    schedule: Schedule
    last: int | None


@dataclass(frozen=True)
class Portfolio:
    """Schedules of one collective on one network, in ascending order of `last`; the last one has no limit.

    Raises UserError if they are not.
    """

    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        if not self.entries:
            raise UserError("a portfolio has at least one schedule")
        ends = [entry.last for entry in self.entries]
        inner = [last for last in ends[:-1] if last is not None]
        if (
            ends[-1] is not None
            or len(inner) != len(ends) - 1
            or inner != sorted(set(inner))
            or min(inner, default=0) < 0
        ):
            raise UserError(f"a portfolio's sizes must ascend and its last entry have no end, not {ends}")
        first = self.entries[0].schedule
        for entry in self.entries[1:]:
            if entry.schedule.topology != first.topology or _asked(entry.schedule) != _asked(first):
                raise UserError("a portfolio's schedules must be of one collective on one network")

    def at(self, size: int) -> Schedule:
        """The schedule for `size` bytes."""
        return next(entry.schedule for entry in self.entries if entry.last is None or size <= entry.last)


def _asked(schedule: Schedule) -> tuple[str, tuple[int, ...], int]:
    collective = schedule.collective
    return collective.kind, collective.members, collective.root


def portfolio(topology: Topology, collective: Collective, smallest: int, largest: int, budget: Budget) -> Portfolio:
    """For sizes from `smallest` to `largest` bytes. Raises EngineError if no engine has a schedule."""
    sizes = _powers(smallest, largest, 4)
    found: list[Schedule] = []
    with Workers(most_workers()) as workers:
        for number, size in enumerate(sizes):
            if number and not budget.left():
                break
            share = Budget(budget.left() / (len(sizes) - number))
            known = {engine.name for engine in ENGINES if not engine.sized} & {schedule.engine for schedule in found}
            asked = candidates(topology, collective, size, share, known=known, workers=workers)
            try:
                found += [one.schedule for one in asked]
            except OutOfTimeError:
                continue  # a share may be too short; the next engines get what it leaves
    if not found:
        raise OutOfTimeError(f"no engine had a schedule within {budget.timeout:g} s; --timeout allows more")
    return Portfolio(tuple(_entries(found, _powers(smallest, largest, 2))))


def _powers(smallest: int, largest: int, factor: int) -> list[int]:
    """Sizes `factor` apart, both ends included."""
    sizes = [smallest]
    while sizes[-1] * factor < largest:
        sizes.append(sizes[-1] * factor)
    return [*sizes, largest] if largest > smallest else sizes


def _entries(found: list[Schedule], sizes: list[int]) -> list[Entry]:
    """The entries: each schedule is kept as long as it is good enough."""
    seconds: list[Callable[[int], float]] = [_remembered(schedule) for schedule in found]

    def fastest(size: int) -> int:
        return min(range(len(found)), key=lambda one: seconds[one](size))

    def good(one: int, size: int) -> bool:
        return seconds[one](size) <= KEEP * seconds[fastest(size)](size)

    entries: list[Entry] = []
    turn, before = fastest(sizes[0]), sizes[0]
    for size in sizes[1:]:
        while not good(turn, size):
            low, high = before, size
            while high > low * EXACT and high - low > 1:
                middle = round((low * high) ** 0.5)
                low, high = (middle, high) if good(turn, middle) else (low, middle)
            entries.append(Entry(found[turn], low))
            turn, before = fastest(high), high  # may not be the fastest at `size`
        before = size
    return [*entries, Entry(found[turn], None)]


def _remembered(schedule: Schedule) -> Callable[[int], float]:
    known: dict[int, float] = {}

    def seconds(size: int) -> float:
        if size not in known:
            known[size] = seconds_at(schedule, size)
        return known[size]

    return seconds
