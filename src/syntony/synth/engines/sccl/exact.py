"""Exact schedules by steps S, rounds R and chunks C: one instance solved, or proven to have no solution.

Collectives that sum are solved as their duals on reversed links (symmetry/reversal.py). all_reduce is a reduce_scatter
followed by an all_gather, with every division of steps and rounds between them. step_solver.py chooses the solver.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil

import numpy as np

from syntony.base.wording import counted
from syntony.synth.bounds.throughput import bounds_of, rounds_per_chunk
from syntony.synth.engines.engine import Budget, EngineError, UndecidedError
from syntony.synth.engines.sccl.step_bound import least_rounds
from syntony.synth.engines.sccl.step_problem import Instance, Send, rounds_needed
from syntony.synth.engines.sccl.step_solver import Question, decide
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.model.routes import routes_of
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.symmetry.groups import fold
from syntony.synth.symmetry.reversal import in_owned_chunks, summed, summed_and_spread
from syntony.topologies.topology import Topology

ENGINE = "sccl"
MAX_SENDS = 2_000_000
"""Instances with more chunks * routes * steps are refused."""


def solve_exactly(
    topology: Topology, collective: Collective, steps: int, rounds: int, budget: Budget, solver: str = "CP-SAT"
) -> Schedule:
    """A schedule of at most `steps` steps and `rounds` rounds. Raises EngineError: none exists, or UndecidedError."""
    if steps < 1 or rounds < steps:
        raise EngineError(f"a schedule has at least 1 step, and 1 round per step; not {steps} steps, {rounds} rounds")
    if collective.kind == "all_reduce":
        schedule = _all_reduce(topology, collective, steps, rounds, budget, solver)
    elif collective.combining:
        dual = spread(topology.reversed(), collective.dual(), steps, rounds, budget, solver)
        schedule = summed(dual, topology)
    else:
        schedule = spread(topology, collective, steps, rounds, budget, solver)
    return judged(schedule)


def spread(
    topology: Topology,
    collective: Collective,
    steps: int,
    rounds: int,
    budget: Budget,
    solver: str = "CP-SAT",
    linear: Fraction | None = None,
) -> Schedule:
    """The same for a collective without sums, without bounds and proof. `linear`: rounds that are known to be needed in
    these steps, as `rounds_floor_in` finds them."""
    network = Network(topology, collective)
    bounds = bounds_of(topology, collective)
    limits = f"{counted(chunk_count(collective), 'chunk')}, {counted(steps, 'step')}, {counted(rounds, 'round')}"
    description = f"{collective.kind} on {topology.name} with {limits}"
    if steps < bounds.latency.steps:
        raise EngineError(
            f"no schedule of {description}: data must travel {counted(bounds.latency.steps, 'step')} (distance bound)"
        )
    floor = rounds_floor(topology, collective)
    if rounds < floor:
        raise EngineError(f"no schedule of {description}: the throughput bound needs {counted(ceil(floor), 'round')}")
    routes = routes_of(network)
    if len(collective.chunks) * len(routes.routes) * steps > MAX_SENDS:
        raise UndecidedError(f"{description} is too large for engine sccl; use --engine greedy")
    instance = Instance(network, routes.routes, steps, rounds)
    return _decoded(instance, decide(Question(instance, routes, description, floor, solver, linear), budget))


def chunk_count(collective: Collective) -> int:
    """C as in SCCL: chunks per block; for all_to_all, per rank's buffer."""
    blocks = collective.ranks if collective.kind == "all_to_all" else collective.blocks
    return len(collective.chunks) // blocks


def rounds_floor(topology: Topology, collective: Collective) -> Fraction:
    """A lower bound on rounds, for the collective's current chunks (for all_reduce: of this engine's schedules)."""
    if collective.kind == "all_reduce":
        _, gather = in_owned_chunks(collective)
        return rounds_floor(topology.reversed(), gather) + rounds_floor(topology, gather)
    bounds = bounds_of(topology, collective)
    return rounds_per_chunk(bounds.throughput, topology, collective) * weight_count(collective)


def rounds_floor_in(topology: Topology, collective: Collective, steps: int, budget: Budget) -> Fraction:
    """A lower bound on rounds in `steps` steps, however finely chunks are cut. Not for all_reduce."""
    if collective.combining:
        return rounds_floor_in(topology.reversed(), collective.dual(), steps, budget)
    network = Network(topology, collective)
    linear = least_rounds(network, routes_of(network).routes, steps, budget.left() / 4)
    return max(rounds_floor(topology, collective), linear)


def least_steps(topology: Topology, collective: Collective) -> int:
    """A lower bound on the steps of this engine's schedules."""
    if collective.kind == "all_reduce":
        _, gather = in_owned_chunks(collective)
        return least_steps(topology.reversed(), gather) + least_steps(topology, gather)
    return bounds_of(topology, collective).latency.steps


def nothing_moves(topology: Topology, collective: Collective) -> Schedule:
    """The schedule of a collective on one rank."""
    values = ValueBuilder()
    for chunk in range(len(collective.chunks)):
        values.contribution(chunk, 0)
    return Schedule(topology, collective, values.build(), Transfers.of(()), engine=ENGINE)


def judged(schedule: Schedule, *more: str) -> Schedule:
    """The schedule with its bounds and proof, followed by `more`."""
    topology, collective = schedule.topology, schedule.collective
    bounds = bounds_of(topology, collective)
    steps, ratio = len(schedule.rounds), ratio_of(schedule)
    floor = rounds_per_chunk(bounds.throughput, topology, collective)
    proven = [
        f"steps {steps} = distance bound"
        if steps == bounds.latency.steps
        else f"steps {steps} vs distance bound {bounds.latency.steps}",
        f"R/C = {ratio} = throughput bound" if ratio == floor else f"R/C = {ratio} vs throughput bound {floor}",
    ]
    if collective.kind == "all_reduce" and (steps, ratio) != (bounds.latency.steps, floor):
        proven.append("reduce_scatter then all_gather, other forms are not ruled out")
    return fold(replace(schedule, bounds=bounds, proof="; ".join([*proven, *more])))


def ratio_of(schedule: Schedule) -> Fraction:
    """R/C, counting chunks of weight 1."""
    return Fraction(int(schedule.rounds.sum())) / weight_count(schedule.collective)


def weight_count(collective: Collective) -> Fraction:
    """C, counting chunks by their weight."""
    counted_blocks = collective.ranks if collective.kind == "all_to_all" else collective.blocks
    return Fraction(int(collective.chunks.weight.sum()), counted_blocks)


def _all_reduce(
    topology: Topology, collective: Collective, steps: int, rounds: int, budget: Budget, solver: str
) -> Schedule:
    """A reduce_scatter, then an all_gather. Every division of steps and rounds is tried, even ones first."""
    if steps < 2:
        raise EngineError("all_reduce is a reduce_scatter and an all_gather, so it needs at least 2 steps")
    cut, gather = in_owned_chunks(collective)
    down, up = (
        partial(spread, wires, gather, budget=budget, solver=solver) for wires in (topology.reversed(), topology)
    )
    with suppress(EngineError):
        dual = down(steps // 2, rounds // 2)
        return summed_and_spread(dual, up(steps - steps // 2, rounds - rounds // 2), cut)
    least_down, least_up = least_steps(topology.reversed(), gather), least_steps(topology, gather)
    for first in sorted(range(least_down, steps - least_up + 1), key=lambda first: abs(2 * first - steps)):
        second = steps - first
        least = ceil(rounds_floor_in(topology.reversed(), gather, first, budget))
        spare = rounds - max(second, ceil(rounds_floor_in(topology, gather, second, budget)))
        for lasting in range(max(first, least), spare + 1):
            try:
                dual = down(first, lasting)
            except UndecidedError:
                raise
            except EngineError:
                continue
            # The all_gather gets what the fewest rounds of the reduce_scatter leave; with less it cannot do better.
            try:
                return summed_and_spread(dual, up(second, rounds - lasting), cut)
            except UndecidedError:
                raise
            except EngineError:
                break
    raise EngineError(
        f"no schedule of all_reduce on {topology.name} with {counted(chunk_count(cut), 'chunk')}, "
        f"{counted(steps, 'step')}, {counted(rounds, 'round')}: proven for every division into a reduce_scatter and an "
        "all_gather; other forms are not ruled out"
    )


def _decoded(instance: Instance, sends: list[Send]) -> Schedule:
    """The sends as a schedule, without steps in which nothing is sent."""
    used = sorted({send.step for send in sends})
    sends = [replace(send, step=used.index(send.step)) for send in sends]
    instance = replace(instance, steps=len(used))
    rows = []
    for send in sends:
        route = instance.routes[send.route]
        rows.append(Transfer(send.chunk, send.chunk, route.src, route.dst, send.step, route.links))
    collective = instance.network.collective
    return Schedule(
        instance.network.topology,
        collective,
        ValueBuilder.of_chunks(collective).build(),
        Transfers.of(rows),
        np.asarray(rounds_needed(instance, sends)),
        ENGINE,
    )
