"""Time limits of searches, passed down to everything that takes time: wall-clock seconds, unless CLOCK is changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

CLOCK: ContextVar[Callable[[], float]] = ContextVar("clock", default=time.monotonic)
"""The clock of deadlines. Benchmarks on a shared machine set it to processor time."""


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
