r"""Engine `hierarchy[:NAME[@LEVELS]]`: collectives composed from those of a topology's levels (symmetry/levels.py).

    all_gather, levels boxes x GPUs          all_reduce: the same backwards, summing; then forwards

      first across: lines of equal GPUs        reduce_scatter    all_reduce of the     all_gather
      then inside:  lines of a box             in the box     ▶  shares across      ▶  in the box

The lines of a level are small networks, each solved by another engine (lines.py). A chunk passes one level after
another, in the order of its group; groups with different orders use all links at once.

                     time ─▶
      wires across   [ group 0 ][  group 1  ]
      wires inside   [ group 1 ][  group 0  ]

A composition sets solvers and orders (compositions.py); without a name, the one with the shortest simulated time is
used. The chunks are so small that no level's schedule cuts them further.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.hierarchy.compositions import COMPOSITIONS, Composition, composition_named
from syntony.synth.engines.hierarchy.lines import LineSolver
from syntony.synth.engines.hierarchy.shares import groups_of
from syntony.synth.engines.hierarchy.stages import Cut, composed, solve
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.levels import Levels, LevelsError, given_levels, levels_of
from syntony.synth.symmetry.reversal import in_owned_chunks, summed, summed_and_spread
from syntony.topologies.topology import Topology

ENGINE = "hierarchy"


def run(topology: Topology, collective: Collective, size: int, budget: Budget, argument: str = "") -> Schedule:
    """The engine; see the module docstring. Raises EngineError if there are no levels, or not for this collective."""
    if budget.steps is not None or budget.rounds is not None:
        raise EngineError("engine hierarchy takes no --steps or --rounds; use --engine sccl")
    name, at, shape = argument.partition("@")
    try:
        levels = given_levels(shape, collective.ranks) if at else levels_of(topology, collective)
    except LevelsError as error:
        hint = "" if at else "; levels can be given behind an @: hierarchy:two-level@2x4"
        raise EngineError(f"engine hierarchy: {error}{hint}") from None
    if name:
        schedule = _composed(topology, collective, levels, composition_named(name), size, budget)
    else:
        schedule = _best(topology, collective, levels, size, budget)
    return replace(schedule, bounds=bounds_of(topology, schedule.collective, budget.for_bounds()))


def _best(topology: Topology, collective: Collective, levels: Levels, size: int, budget: Budget) -> Schedule:
    """The composition with the shortest simulated time among those that there is time for."""
    found: list[tuple[float, Schedule]] = []
    refused: EngineError | None = None
    for composition in COMPOSITIONS:
        if found and not budget.left():
            break
        try:
            schedule = _composed(topology, collective, levels, composition, size, budget)
        except EngineError as error:
            refused = refused or error
            continue
        found.append((simulate(schedule, size).seconds, schedule))
    if not found:
        assert refused is not None
        raise refused
    return min(found, key=lambda one: one[0])[1]


def _composed(
    topology: Topology, collective: Collective, levels: Levels, composition: Composition, size: int, budget: Budget
) -> Schedule:
    """The collective by one composition."""
    if composition.two:
        levels = levels.joined()
    if collective.kind == "all_reduce":
        _, spread = in_owned_chunks(collective)
    else:
        spread = collective.dual() if collective.combining else collective
    spreading = collective.kind == "all_reduce" or not collective.combining
    ways = [topology.reversed()] * collective.combining + [topology] * spreading
    solver = LineSolver(spread.kind, size, budget)
    solved = [solve(way, spread, levels, composition, solver) for way in ways]
    seconds = [sum((level.block_seconds for level in both), Fraction(0)) for both in zip(*solved, strict=True)]
    cut = Cut(spread, levels, groups_of(spread.kind, levels, composition, seconds), solved)
    parts = [composed(way, spread, levels, own, cut) for way, own in zip(ways, solved, strict=True)]
    if collective.kind == "all_reduce":
        whole = replace(collective, chunks=ChunkTable(np.zeros_like(cut.chunks.block), cut.chunks.weight))
        schedule = summed_and_spread(parts[0], parts[1], whole)
    elif collective.combining:
        schedule = summed(parts[0], topology)
    else:
        schedule = parts[0]
    return replace(schedule, engine=f"{ENGINE}:{composition.name}")
