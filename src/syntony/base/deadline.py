"""Time limits of searches, passed down to everything that takes time: wall-clock seconds, unless CLOCK is changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path


class WallClock:
    """Seconds of wall clock, less those for which it was stopped."""

    def __init__(self) -> None:
        self._paused = 0.0

    def __call__(self) -> float:
        return time.monotonic() - self._paused

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Within it, it stands still."""
        begin = time.monotonic()
        yield
        self._paused += time.monotonic() - begin


WALL = WallClock()
CLOCK: ContextVar[Callable[[], float]] = ContextVar("clock", default=WALL)
"""The clock of deadlines. Benchmarks on a shared machine set it to processor time."""
WAITS = Path("/proc/self/schedstat")
"""How long this process ran, and how long it was ready but waited for a processor, in nanoseconds."""


def wall(seconds: float) -> float:
    """The limit for solvers that know wall clock alone, so that they get about as many seconds of CLOCK.

    Where CLOCK is not wall clock, it is longer by how long this process waited for processors so far.
    """
    if isinstance(CLOCK.get(), WallClock):
        return seconds
    with suppress(OSError, ValueError, ZeroDivisionError):  # not on every kernel
        ran, waited, *_ = map(int, WAITS.read_text().split())
        return seconds * (1 + waited / ran)
    return seconds


@dataclass(frozen=True)
class Deadline:
    """The end of a search; endless by default.

    timeout  seconds from when this object was made
    """

    timeout: float = float("inf")
    _start: float = field(default_factory=lambda: CLOCK.get()(), compare=False, kw_only=True)

    def left(self) -> float:
        """Seconds left; never negative."""
        return max(0.0, self._start + self.timeout - CLOCK.get()())

    def passed(self) -> bool:
        """Whether time is up."""
        return self.left() == 0.0


ENDLESS = Deadline()
"""No limit."""
