"""Engine `auto`: asks the engines that fit, one after another, and keeps the schedule with the shortest simulated time.

    candidates      forest ──▶ flow ──▶ pipeline ──▶ greedy ──▶ sccl ──▶ ..     those worth asking, quick and good first
    simulated        12 us                10 us       9 us      11 us             at the size, cut as the executor cuts
    kept                                              greedy

The search ends when a schedule is as fast as the bounds allow, or when time is up; then the best schedule so far is
returned. Each engine gets a share of the remaining time, so that a slow one leaves time for those after it. An engine
that cannot do the collective, or not on this topology or in this time, is skipped.

With `auto:in_network`, switches may add and copy, too; without it, the schedule can be run by ranks alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from math import ceil

from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.registry import engine_named
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.program_simulator import executor_slice
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.topologies.topology import Topology

CLOSE = 1.01
"""A schedule within 1 % of the bounds ends the search."""
MOST_MESSAGES = 1 << 19
"""If a simulation had more messages than this, slices are made larger."""
SWITCHES = "in_network"
"""The argument that lets switches add and copy."""


@dataclass(frozen=True)
class Candidate:
    """The name of an engine, the problems that it is asked for, and its share of the remaining time."""

    engine: str
    worth: Callable[[Topology, Collective], bool]
    share: float


def _up_to(ranks: int) -> Callable[[Topology, Collective], bool]:
    return lambda topology, collective: collective.ranks <= ranks


def _always(topology: Topology, collective: Collective) -> bool:
    return True


def _switches_help(topology: Topology, collective: Collective) -> bool:
    return any(node.able for node in topology.nodes)


CANDIDATES = (
    Candidate("forest", _always, 0.5),
    Candidate("flow", _always, 0.5),
    Candidate(SWITCHES, _switches_help, 0.5),
    Candidate("pipeline", _up_to(64), 0.3),
    Candidate("hierarchy", _up_to(64), 0.3),
    Candidate("greedy", _up_to(64), 0.5),
    Candidate("sccl", _up_to(8), 0.2),
    Candidate("teccl", _up_to(32), 0.3),
    Candidate("bfb", _up_to(256), 0.5),
)
"""In the order in which they are asked."""
FALLBACK = "greedy"
"""The engine that is asked if no other one returned a schedule."""


@dataclass(frozen=True)
class Found:
    """A candidate's schedule, and its simulated seconds."""

    engine: str
    schedule: Schedule
    seconds: float


def run(topology: Topology, collective: Collective, size: int, budget: Budget, argument: str = "") -> Schedule:
    """The engine; see the top of the file. With steps or rounds given, it is engine `sccl`.

    Its proof says what was compared. Raises EngineError if none of the engines returns a schedule.
    """
    found = list(candidates(topology, collective, size, budget, argument))
    best = min(found, key=lambda one: one.seconds)
    if len(found) == 1:
        return best.schedule
    compared = ", ".join(f"{one.engine} {one.seconds * 1e6:.4g} us" for one in found)
    proofs = [best.schedule.proof, f"fastest simulated at {size} bytes of {compared}"]
    return replace(best.schedule, proof="; ".join(filter(None, proofs)))


def candidates(
    topology: Topology,
    collective: Collective,
    size: int,
    budget: Budget,
    argument: str = "",
    known: Collection[str] = (),
) -> Iterator[Found]:
    """The schedules of the candidates, as they are found; `known` engines are not asked again.

    Raises EngineError if there is none at all.
    """
    if argument not in ("", SWITCHES):
        raise EngineError(f"engine auto takes the argument {SWITCHES} or none, not '{argument}'")
    if budget.steps is not None or budget.rounds is not None:
        yield Found("sccl", engine_named("sccl").run(topology, collective, size, budget), 0.0)
        return
    offered = [one for one in CANDIDATES if one.worth(topology, collective) and (argument or one.engine != SWITCHES)]
    none_yet, refusal = not known, None
    for candidate in offered:
        if candidate.engine in known:
            continue
        if not (none_yet or budget.left()):
            return
        try:
            found = _ask(candidate.engine, topology, collective, size, budget.left() * candidate.share)
        except EngineError as error:
            refusal = error
            continue
        none_yet = False
        yield found
        bounds = found.schedule.bounds
        if bounds is not None and found.seconds <= CLOSE * bounds.seconds(size):
            return
    if none_yet:
        if FALLBACK in {candidate.engine for candidate in offered} and refusal:
            raise refusal
        yield _ask(FALLBACK, topology, collective, size, budget.left())


def _ask(engine: str, topology: Topology, collective: Collective, size: int, timeout: float) -> Found:
    schedule = engine_named(engine).run(topology, collective, size, Budget(timeout))
    return Found(engine, schedule, seconds_at(schedule, size))


def seconds_at(schedule: Schedule, size: int) -> float:
    """Simulated seconds at `size` bytes, messages cut as the CPU executor cuts them."""
    collective = schedule.collective
    slices = max(1, MOST_MESSAGES // max(1, len(schedule.transfers)))
    largest = int(collective.chunks.weight.max(initial=0)) * collective.unit * size
    return simulate(schedule, size, max(executor_slice(collective.ranks), ceil(largest / slices))).seconds
