"""What an engine is: a function from topology, collective, size and budget to a Schedule."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from synth.collective import Collective
from synth.schedule import Schedule
from topologies.command import UserError
from topologies.topology import Topology


class EngineError(UserError):
    """No schedule: none exists under the given limits, the engine does not do this, or time ran out."""


class UndecidedError(EngineError):
    """No answer: neither a schedule nor a proof that there is none."""


class OutOfTimeError(UndecidedError):
    """The time limit came before an answer."""


@dataclass(frozen=True)
class Budget:
    """Limits for an engine.

    timeout  seconds of wall clock
    steps    at most so many steps; None: the engine's choice
    rounds   at most so many rounds (see Schedule.rounds); None: the engine's choice
    """

    timeout: float = 60.0
    steps: int | None = None
    rounds: int | None = None
    _start: float = field(default_factory=time.monotonic, compare=False)

    def left(self) -> float:
        """Seconds left; never negative."""
        return max(0.0, self._start + self.timeout - time.monotonic())


@dataclass(frozen=True)
class Engine:
    """One row of the registry.

    run      (topology, collective, size in bytes, budget) -> Schedule with bounds. It may cut the collective's chunks
             further; the schedule's own collective says how. Raises EngineError
    purpose  what to use it for, in a few words
    source   where the method was published
    """

    name: str
    run: Callable[[Topology, Collective, int, Budget], Schedule]
    purpose: str
    source: str
