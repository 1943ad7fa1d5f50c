"""Time limits of searches, handed down to whatever takes time: seconds of wall clock, unless CLOCK says otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

CLOCK: ContextVar[Callable[[], float]] = ContextVar("clock", default=time.monotonic)
"""What a deadline counts by. A benchmark on a machine that others use, too, sets processor time."""


@dataclass(frozen=True)
class Deadline:
    """The end of a search; by default there is none.

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
