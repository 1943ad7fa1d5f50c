"""Engine `auto`: asks the engines that fit, and keeps what is simulated fastest."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from synth.collective import Collective
from synth.engines import flow, forest, greedy
from synth.engines.engine import Budget, EngineError
from synth.engines.sccl import search as sccl
from synth.schedule import Schedule
from synth.simulator import simulate
from topologies.topology import Topology

GREEDY_RANKS = 64
"""Where flows are exact, greedy paths, better for small messages, are tried up to so many ranks."""
EXACT_RANKS = 8
"""The exact engine is tried up to so many ranks."""
EXACT_SECONDS = 10.0
"""It is given so many seconds."""


def run(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    """The exact engine where steps are given; otherwise whichever engine's schedule is simulated fastest at `size`."""
    if budget.steps is not None or budget.rounds is not None:
        return sccl.run(topology, collective, size, budget)
    found = []
    with suppress(EngineError):  # It does not do this collective, or not on these wires.
        found.append(flow.run(topology, collective, size, budget))
    if not found or collective.ranks <= GREEDY_RANKS:
        found.append(greedy.run(topology, collective, size, budget))
    with suppress(EngineError):
        found.append(forest.run(topology, collective, size, budget))
    if collective.ranks <= EXACT_RANKS:
        with suppress(EngineError):  # No exact answer in time.
            found.append(
                sccl.run(topology, collective, size, replace(budget, timeout=min(EXACT_SECONDS, budget.timeout)))
            )
    return found[0] if len(found) == 1 else min(found, key=lambda schedule: simulate(schedule, size).seconds)
