"""The engines, one table; where to add the next one.

An engine is a function `(topology, collective, size, budget) -> Schedule` in a module of its own. Modules are imported
when their engine runs.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches

from synth.collective import Collective
from synth.engines.engine import Budget, Engine, EngineError
from synth.schedule import Schedule
from topologies.topology import Topology

GREEDY_RANKS = 64
"""Where flows are exact, `auto` tries greedy paths, better for small messages, up to so many ranks."""
EXACT_RANKS = 8
"""`auto` tries the exact engine up to so many ranks."""
EXACT_SECONDS = 10.0
"""`auto` gives the exact engine so many seconds."""


def _sccl(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    from synth.engines.sccl import run

    return run(topology, collective, size, budget)


def _sccl_z3(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    from synth.engines.sccl import run

    return run(topology, collective, size, budget, solver="z3")


def _greedy(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    from synth.engines.greedy import run

    return run(topology, collective, size, budget)


def _forest(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    from synth.engines.forest import run

    return run(topology, collective, size, budget)


def _flow(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    from synth.engines.flow import run

    return run(topology, collective, size, budget)


def _in_network(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    from synth.engines.in_network import run

    return run(topology, collective, size, budget)


def auto(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    """The exact engine where steps are given; otherwise whichever engine's schedule is simulated fastest at `size`."""
    from synth.simulator import simulate

    if budget.steps is not None or budget.rounds is not None:
        return _sccl(topology, collective, size, budget)
    found = []
    with suppress(EngineError):  # It does not do this collective, or not on these wires.
        found.append(_flow(topology, collective, size, budget))
    if not found or collective.ranks <= GREEDY_RANKS:
        found.append(_greedy(topology, collective, size, budget))
    with suppress(EngineError):
        found.append(_forest(topology, collective, size, budget))
    if collective.ranks <= EXACT_RANKS:
        with suppress(EngineError):  # No exact answer in time.
            found.append(_sccl(topology, collective, size, replace(budget, timeout=min(EXACT_SECONDS, budget.timeout))))
    return found[0] if len(found) == 1 else min(found, key=lambda schedule: simulate(schedule, size).seconds)


ENGINES = (
    Engine("auto", auto, "the fastest of those that ranks can run, by simulation", "-"),
    Engine("sccl", _sccl, "exact steps, rounds and chunks; up to about 16 ranks", "Cai et al., PPoPP'21"),
    Engine("sccl-z3", _sccl_z3, "the same by another solver, slowly: a second opinion", "Cai et al., PPoPP'21"),
    Engine("forest", _forest, "exact throughput of what spreads or sums; hundreds of ranks", "Zhao et al., NSDI'26"),
    Engine("flow", _flow, "exact throughput of all_to_all, gather, scatter; hundreds of ranks", "Basu et al., HPDC'24"),
    Engine("greedy", _greedy, "any connected topology, hundreds of ranks", "after Won et al., TACOS, MICRO'24"),
    Engine("in_network", _in_network, "trees over switches that add and copy", "Graham et al., COM-HPC'16"),
)


def engine_named(name: str) -> Engine:
    """The engine of that name. Raises EngineError with the nearest name."""
    for engine in ENGINES:
        if engine.name == name:
            return engine
    names = [engine.name for engine in ENGINES]
    close = get_close_matches(name, names, n=1)
    hint = f" (did you mean '{close[0]}'?)" if close else ""
    raise EngineError(f"no engine '{name}'{hint}; the engines are {', '.join(names)}")
