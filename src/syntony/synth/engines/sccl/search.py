"""Engine `sccl`: the cheapest schedule by steps and rounds, after Cai et al., SCCL (PPoPP'21).

A schedule of S steps and R rounds that cuts each block into C chunks costs about S * alpha + (R / C) * bytes * beta:
S is its latency, R/C its bandwidth. exact.py decides one (C, S, R); frontier.py finds the best ones.
"""

from __future__ import annotations

from contextlib import suppress
from math import ceil

from syntony.base.wording import counted
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines.engine import Budget, EngineError, UndecidedError
from syntony.synth.engines.sccl.exact import judged, least_steps, rounds_floor, rounds_floor_in, solve_exactly
from syntony.synth.engines.sccl.frontier import pareto
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.groups import expand
from syntony.synth.symmetry.reversal import in_owned_chunks
from syntony.synth.symmetry.throughput import seconds_per_byte
from syntony.topologies.topology import Topology

PATIENCE = 0.2
"""Seconds that an instance of the frontier may take; or SHARE of the time limit, if that is more."""
SHARE = 0.05
"""The part of the time limit that an instance of the frontier may take."""
SOLVERS = {"": "CP-SAT", "z3": "z3"}
"""By the engine's argument."""


def run(topology: Topology, collective: Collective, size: int, budget: Budget, argument: str = "") -> Schedule:
    """The engine. With steps and rounds: that instance, on the collective's own chunks.

    With only steps: the fewest rounds for them. With neither: the cheapest at `size` bytes among the schedule with the
    fewest steps on the collective's own chunks, which is found first, and the points of the frontier found in time.
    Raises EngineError if no such schedule exists, UndecidedError.
    """
    solver = SOLVERS.get(argument)
    if solver is None:
        raise EngineError(f"engine sccl has no solver '{argument}'; sccl:z3 uses z3, sccl alone CP-SAT")
    if budget.steps is not None and budget.rounds is not None:
        return solve_exactly(topology, collective, budget.steps, budget.rounds, budget, solver)
    if budget.rounds is not None:
        raise EngineError("--rounds needs --steps: give both, or neither")
    if budget.steps is not None:
        return _fewest_rounds(topology, collective, budget.steps, budget, solver)
    least = least_steps(topology, collective)
    if not least:
        return next(pareto(topology, collective, budget)).schedule
    found = [_fewest_rounds(topology, collective, least, budget, solver)]
    alpha = min(link.alpha for link in topology.links)
    moving = float(size * bounds_of(topology, collective).throughput.seconds_per_byte)
    if budget.better is not None:
        budget.better(found[0])
    with suppress(UndecidedError):
        for point in pareto(topology, collective, budget, max(PATIENCE, SHARE * budget.timeout), solver):
            if budget.better is not None and _cost(point.schedule, size) < min(_cost(other, size) for other in found):
                budget.better(point.schedule)
            found.append(point.schedule)
            if (point.steps + 1) * alpha + moving >= min(_cost(schedule, size) for schedule in found):
                break
    return min(found, key=lambda schedule: _cost(schedule, size))


def _fewest_rounds(topology: Topology, collective: Collective, steps: int, budget: Budget, solver: str) -> Schedule:
    """The fewest rounds, with a proof that one round less is impossible."""
    halves = collective.kind == "all_reduce"
    base = in_owned_chunks(collective)[0] if halves else collective
    if steps < least_steps(topology, base):
        raise EngineError(
            f"no schedule of {collective.kind} on {topology.name} has {counted(steps, 'step')}: "
            f"it takes at least {counted(least_steps(topology, base), 'step')} (distance bound)"
        )
    floor = rounds_floor(topology, base) if halves else rounds_floor_in(topology, base, steps, budget)
    least = max(steps, ceil(floor))
    total = len(base.chunks) * base.ranks * int(base.chunks.weight.max())
    for rounds in range(least, steps + total + 1):
        try:
            schedule = solve_exactly(topology, base, steps, rounds, budget, solver)
        except UndecidedError as error:
            proven = f"proven so far: {counted(steps, 'step')} take at least {counted(rounds, 'round')}"
            raise type(error)(f"{error} ({proven})") from error
        except EngineError:
            continue
        if len(schedule.rounds) < steps:
            return schedule  # one round per step was enough for fewer steps
        form = " of this form" if halves else ""
        return judged(
            schedule, f"no schedule{form} of {counted(steps, 'step')} has fewer than {counted(rounds, 'round')}"
        )
    raise AssertionError(f"{collective.kind} on {topology.name}: shortest paths one after another do not fit either")


def _cost(schedule: Schedule, size: int) -> float:
    """Seconds at `size` bytes if steps are barriers, each waiting for the slowest alpha in use."""
    used = set(expand(schedule).transfers.link.tolist())
    alpha = max((schedule.topology.links[link].alpha for link in used), default=0.0)
    return len(schedule.rounds) * alpha + float(size * seconds_per_byte(schedule))
