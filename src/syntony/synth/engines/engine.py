"""The interface of engines: a function from topology, collective, size and budget to a Schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module

from syntony.base.command import UserError
from syntony.base.deadline import Deadline
from syntony.synth.bounds.distance import latency
from syntony.synth.checker import check_schedule
from syntony.synth.model.bound import Bounds
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule
from syntony.topologies.topology import Topology

MEETS_BOUND = "optimal throughput: what the links carry, counted exactly, meets the bound"
"""The proof of a Schedule that meets its throughput bound."""


BOUND_SECONDS = 1.0
"""Seconds for bounds after the end of a search."""


class EngineError(UserError):
    """No schedule: none exists within the limits, the engine does not support the problem, or time ran out."""


class UndecidedError(EngineError):
    """No answer: neither a schedule nor a proof that there is none."""


class OutOfTimeError(UndecidedError):
    """The time limit was reached before there was an answer."""


class SlowerError(EngineError):
    """A schedule that cannot be faster than what is known."""


@dataclass(frozen=True)
class Budget(Deadline):
    """Limits for an engine.

    timeout  seconds of wall clock
    steps    maximum number of steps; None: the engine's choice
    rounds   maximum number of rounds (see Schedule.rounds); None: the engine's choice
    chunks   maximum number of chunks of all blocks together, which engines that cut chunks heed; None: their choice
    better   called with every new best schedule, as it is found
    """

    timeout: float = 60.0
    steps: int | None = None
    rounds: int | None = None
    chunks: int | None = None
    better: Callable[[Schedule], None] | None = field(default=None, compare=False)

    def unheard(self) -> Budget:
        """The same for an engine that works for another one, often on a part of the question: nobody hears what it
        finds on the way, since that is no answer."""
        return replace(self, better=None)

    def allows(self, schedule: Schedule) -> bool:
        """Whether it has no more chunks than the maximum."""
        return self.chunks is None or len(schedule.collective.chunks) <= self.chunks

    def refuse_more(self, schedule: Schedule) -> None:
        """Raises EngineError if it has more chunks than the maximum."""
        if not self.allows(schedule):
            found = len(schedule.collective.chunks)
            raise EngineError(
                f"engine {schedule.engine} makes {found} chunks, more than {self.chunks}; only engines auto,"
                " pipeline and teccl look for schedules with few chunks"
            )

    def for_bounds(self) -> Deadline:
        """The time for bounds: what is left, plus a little if a search has used up everything."""
        return Deadline(max(self.left(), BOUND_SECONDS))


@dataclass(frozen=True)
class Engine:
    """One row of the registry.

    module    the module in syntony.synth.engines that has its function `run`:
              (topology, collective, size in bytes, budget) -> Schedule with bounds. Raises EngineError.
              It may cut the collective's chunks further; the schedule's own collective says how
    purpose   what to use it for, in a few words
    source    where the method was published
    argument  what may follow the name after a colon (`sccl:z3`), as help shows it; `run` takes it as its keyword
              `argument`, "" if none was given. Empty: the engine takes no argument
    sized     whether its schedules depend on the size
    solver    the module of a solver that it needs and that takes long to import; empty: none but scipy.optimize
    given     the argument, once the engine was named with one
    """

    name: str
    module: str
    purpose: str
    source: str
    argument: str = ""
    sized: bool = True
    solver: str = ""
    given: str = ""

    @property
    def usage(self) -> str:
        """The name, with the argument that may follow it."""
        return f"{self.name}[:{self.argument}]" if self.argument else self.name

    def run(self, topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
        """Imports the engine's module, and runs it. Raises EngineError."""
        run = import_module(f"syntony.synth.engines.{self.module}").run
        more = {"argument": self.given} if self.argument else {}
        schedule: Schedule = run(topology, collective, size, budget, **more)
        return schedule


def bounded(schedule: Schedule, engine: str, bounds: Bounds) -> Schedule:
    """The engine's schedule, with bounds of the uncut collective; latency's witness is one of its chunks."""
    farthest = latency(Network(schedule.topology, schedule.collective))
    return replace(schedule, engine=engine, bounds=replace(bounds, latency=farthest), proof="")


def checked(schedule: Schedule) -> Schedule:
    """The schedule, if the checker accepts it. Raises AssertionError if not: a defect of the engine."""
    verdict = check_schedule(schedule)
    if not verdict:
        raise AssertionError(f"engine {schedule.engine} made a schedule that the checker refuses: {verdict.fault}")
    return schedule
