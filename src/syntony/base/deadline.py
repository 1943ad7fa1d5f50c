"""Time limits of searches: wall clock, handed down to whatever takes time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Deadline:
    """The end of a search; by default there is none.

    timeout  seconds of wall clock from when this object was made
    """

    timeout: float = float("inf")
    _start: float = field(default_factory=time.monotonic, compare=False, kw_only=True)

    def left(self) -> float:
        """Seconds left; never negative."""
        return max(0.0, self._start + self.timeout - time.monotonic())

    def passed(self) -> bool:
        """Whether time is up."""
        return self.left() == 0.0


ENDLESS = Deadline()
"""No limit."""
