"""Engine `sccl`: exact schedules by steps, rounds and chunks, after Cai et al., SCCL (PPoPP'21).

A schedule of S steps and R rounds that cuts each block into C chunks costs about S * alpha + (R / C) * bytes * beta:
S is its latency, R/C its bandwidth. `solve_exactly` answers for one (C, S, R); `pareto` walks the frontier:

    R/C ▲  x (C, S, R)         S = fewest steps, then one more each time; for each S the least R/C that exists,
        │     x                with the failure of every smaller R/C proven on the way;
        │         x            until R/C meets the throughput bound.
        └────────────▶ S

Collectives that sum are solved as their duals on reversed links (synth/reversal.py); all_reduce is the two in a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

import numpy as np

from synth.bounds.throughput import bounds_of, rounds_per_chunk
from synth.collective import ChunkTable, Collective
from synth.counted import counted
from synth.engines.engine import Budget, EngineError, OutOfTimeError
from synth.engines.step_encoding import Instance, RouteAction, Send, rounds_needed, solve
from synth.network import Network
from synth.reversal import in_owned_chunks, summed, summed_and_spread
from synth.routes import Routes, routes_of
from synth.schedule import Schedule, Transfer, Transfers
from synth.symmetry import chunk_permutation
from synth.values import ValueBuilder
from topologies.topology import Topology

ENGINE = "sccl"
SPARE_ROUNDS = 5
"""The frontier considers R <= S + 5 (the k of k-synchronous), and the rounds of a bandwidth-optimal schedule."""
MIN_CUTS = 6
"""It cuts each chunk into up to so many, or up to twice as many as a bandwidth-optimal schedule needs."""
MAX_OPTIMAL_ROUNDS = 32
"""It does not consider bandwidth-optimal schedules of more rounds than this."""
MAX_SENDS = 2_000_000
"""Instances of more chunks * routes * steps are refused."""


@dataclass(frozen=True)
class Point:
    """One point of the Pareto frontier. `schedule.proof` says what is proven about it."""

    schedule: Schedule
    steps: int
    rounds: int
    chunks: int


def run(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    """The engine. With steps and rounds: that instance, on the collective's own chunks.

    With steps alone: the least rounds for them. With neither: what costs least at `size` bytes among the schedule of
    fewest steps on the collective's own chunks, which is found first, and the points of the frontier found in time.
    Raises EngineError where no such schedule exists, OutOfTimeError.
    """
    if budget.steps is not None and budget.rounds is not None:
        return solve_exactly(topology, collective, budget.steps, budget.rounds, budget)
    if budget.rounds is not None:
        raise EngineError("rounds without steps: give --steps too, or neither")
    if budget.steps is not None:
        return _fewest_rounds(topology, collective, budget.steps, budget)
    least = _least_steps(topology, collective)
    if not least:
        return next(pareto(topology, collective, budget)).schedule
    found = [_fewest_rounds(topology, collective, least, budget)]
    with suppress(OutOfTimeError):
        for point in pareto(topology, collective, budget, patience=budget.timeout / 20):
            found.append(point.schedule)
    return min(found, key=lambda schedule: _cost(schedule, size))


def solve_exactly(topology: Topology, collective: Collective, steps: int, rounds: int, budget: Budget) -> Schedule:
    """A schedule of at most `steps` steps and `rounds` rounds. Raises EngineError: none exists, or OutOfTimeError."""
    if steps < 1 or rounds < steps:
        raise EngineError(f"a schedule has at least 1 step, and a round for each; not {steps} steps, {rounds} rounds")
    if collective.kind == "all_reduce":
        if steps < 2:
            raise EngineError("all_reduce is a reduce_scatter and an all_gather, so it needs at least 2 steps")
        cut, gather = in_owned_chunks(collective)
        dual = _spread(topology.reversed(), gather, steps // 2, rounds // 2, budget)
        spread = _spread(topology, gather, steps - steps // 2, rounds - rounds // 2, budget)
        schedule = summed_and_spread(dual, spread, cut)
    elif collective.combining:
        schedule = summed(_spread(topology.reversed(), collective.dual(), steps, rounds, budget), topology)
    else:
        schedule = _spread(topology, collective, steps, rounds, budget)
    return _judged(schedule, ())


def pareto(
    topology: Topology, collective: Collective, budget: Budget, patience: float | None = None
) -> Iterator[Point]:
    """The frontier by growing steps, on ever finer cuts of the collective's chunks; see SPARE_ROUNDS.

    Raises OutOfTimeError when a question is left open: what was yielded before stands. With `patience` (seconds), a
    question open so long is passed over, and the proof of its point names it: that point may not be on the frontier.
    """
    base = in_owned_chunks(collective)[0] if collective.kind == "all_reduce" else collective
    halves = 2 if base.kind == "all_reduce" else 1
    floor = _rounds_floor(topology, base)
    if not floor:
        yield Point(_judged(_nothing_moves(topology, base), ()), 0, 0, chunk_count(base))
        return
    first = _least_steps(topology, base)
    best: Fraction | None = None
    for steps in range(first, first + halves * len(topology.nodes) ** 2, halves):
        refuted: list[str] = []
        undecided: list[str] = []
        for ratio, rounds, cut in _candidates(steps, floor, halves):
            if best is not None and ratio >= best:
                break
            finer = _cut_finer(base, cut)
            asked = f"({chunk_count(finer)}, {steps}, {rounds})"
            question = budget if patience is None else Budget(min(patience, budget.left()))
            try:
                schedule = solve_exactly(topology, finer, steps, rounds, question)
            except OutOfTimeError:
                if patience is None or not budget.left():
                    raise
                undecided.append(asked)
                continue
            except EngineError:
                refuted.append(asked)
                continue
            best = ratio
            judged = _judged(schedule, tuple(refuted), tuple(undecided))
            yield Point(judged, len(judged.rounds), int(judged.rounds.sum()), chunk_count(finer))
            break
        if best is not None and best <= floor:
            return


def chunk_count(collective: Collective) -> int:
    """C as SCCL counts it: chunks per block; of all_to_all, per rank's buffer."""
    blocks = collective.ranks if collective.kind == "all_to_all" else collective.blocks
    return len(collective.chunks) // blocks


def _candidates(steps: int, floor: Fraction, halves: int) -> list[tuple[Fraction, int, int]]:
    """(R/C, R, C) worth trying with `steps` steps, by R/C, the smallest instance of each ratio only."""
    found: dict[Fraction, tuple[int, int]] = {}
    optimal = floor.numerator if floor.numerator <= MAX_OPTIMAL_ROUNDS else 0
    for rounds in range(steps, max(steps + halves * SPARE_ROUNDS, optimal) + 1, halves):
        for cut in range(1, min(int(rounds / floor), max(MIN_CUTS, 2 * floor.denominator)) + 1):
            found.setdefault(Fraction(rounds, cut), (rounds, cut))
    return [(ratio, *found[ratio]) for ratio in sorted(found)]


def _rounds_floor(topology: Topology, collective: Collective) -> Fraction:
    """No schedule has fewer rounds per cut of the collective's own chunks."""
    if collective.kind == "all_reduce":
        _, gather = in_owned_chunks(collective)
        return _rounds_floor(topology.reversed(), gather) + _rounds_floor(topology, gather)
    bounds = bounds_of(topology, collective)
    return rounds_per_chunk(bounds.throughput, topology, collective) * chunk_count(collective)


def _least_steps(topology: Topology, collective: Collective) -> int:
    """No schedule that this engine makes has fewer steps."""
    if collective.kind == "all_reduce":
        return 2 * bounds_of(topology, in_owned_chunks(collective)[1]).latency.steps
    return bounds_of(topology, collective).latency.steps


def _cut_finer(collective: Collective, pieces: int) -> Collective:
    """Each chunk cut into `pieces` equal ones."""
    chunks = collective.chunks
    return replace(collective, chunks=ChunkTable(np.repeat(chunks.block, pieces), np.repeat(chunks.weight, pieces)))


def _fewest_rounds(topology: Topology, collective: Collective, steps: int, budget: Budget) -> Schedule:
    halves = 2 if collective.kind == "all_reduce" else 1
    base = in_owned_chunks(collective)[0] if halves == 2 else collective
    least = max(steps, ceil(_rounds_floor(topology, base)))
    least += (least - steps) % halves
    refuted: list[str] = []
    total = len(base.chunks) * base.ranks * int(base.chunks.weight.max())
    for rounds in range(least, steps + total + 1, halves):
        try:
            return _judged(solve_exactly(topology, base, steps, rounds, budget), tuple(refuted))
        except OutOfTimeError:
            raise
        except EngineError:
            refuted.append(f"({chunk_count(base)}, {steps}, {rounds})")
    raise EngineError(f"no schedule of {collective.kind} on {topology.name} has {counted(steps, 'step')}")


def _spread(topology: Topology, collective: Collective, steps: int, rounds: int, budget: Budget) -> Schedule:
    """A collective that sums nothing, in `steps` steps and `rounds` rounds."""
    network = Network(topology, collective)
    bounds = bounds_of(topology, collective)
    limits = f"{counted(chunk_count(collective), 'chunk')}, {counted(steps, 'step')}, {counted(rounds, 'round')}"
    asked = f"{collective.kind} on {topology.name} with {limits}"
    if steps < bounds.latency.steps:
        raise EngineError(
            f"no schedule of {asked}: data must travel {counted(bounds.latency.steps, 'step')} (distance bound)"
        )
    floor = _rounds_floor(topology, collective)
    if rounds < floor:
        raise EngineError(f"no schedule of {asked}: the throughput bound asks for {counted(ceil(floor), 'round')}")
    routes = routes_of(network)
    if len(collective.chunks) * len(routes.routes) * steps > MAX_SENDS:
        raise EngineError(f"{asked} is too large for engine sccl; --engine greedy takes it")
    instance = Instance(network, routes.routes, steps, rounds)
    actions = _actions(network, routes)
    found: list[Send] | bool | None = None
    if actions:
        found = solve(instance, budget.left() / 3, actions)
    if not isinstance(found, list):
        found = solve(instance, budget.left())
    if found is None:
        raise OutOfTimeError(
            f"z3 did not decide {asked} within {budget.timeout:g} s; allow more with --timeout, or ask for fewer chunks"
        )
    if isinstance(found, bool):
        which = "" if routes.complete else " over shortest routes"
        raise EngineError(f"no schedule of {asked}{which}: z3 proved it unsatisfiable")
    return _decoded(instance, found)


def _actions(network: Network, routes: Routes) -> list[RouteAction]:
    """The topology's generators as they act on chunks and routes; those that fit."""
    number = {route.links: position for position, route in enumerate(routes.routes)}
    actions = []
    for nodes in network.topology.generators:
        chunks = chunk_permutation(network.collective, nodes)
        if chunks is None:
            continue
        links = network.topology.link_permutation(nodes)
        moved = [number.get(tuple(links[link] for link in route.links), -1) for route in routes.routes]
        if -1 not in moved:
            actions.append(RouteAction(chunks, tuple(moved)))
    return actions


def _nothing_moves(topology: Topology, collective: Collective) -> Schedule:
    """The schedule of a collective on one rank."""
    values = ValueBuilder()
    for chunk in range(len(collective.chunks)):
        values.contribution(chunk, 0)
    return Schedule(topology, collective, values.build(), Transfers.of(()), engine=ENGINE)


def _decoded(instance: Instance, sends: list[Send]) -> Schedule:
    """The sends as a schedule; steps in which nothing is sent fall away."""
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


def _judged(schedule: Schedule, refuted: tuple[str, ...], undecided: tuple[str, ...] = ()) -> Schedule:
    """The schedule with its bounds and with what is proven about it."""
    topology, collective = schedule.topology, schedule.collective
    bounds = bounds_of(topology, collective)
    steps, rounds, chunks = len(schedule.rounds), int(schedule.rounds.sum()), chunk_count(collective)
    floor = rounds_per_chunk(bounds.throughput, topology, collective)
    ratio = Fraction(rounds, chunks)
    said = [
        f"steps {steps} = distance bound"
        if steps == bounds.latency.steps
        else f"steps {steps} vs distance bound {bounds.latency.steps}",
        f"R/C = {ratio} = throughput bound" if ratio == floor else f"R/C = {ratio} vs throughput bound {floor}",
    ]
    if collective.kind == "all_reduce" and (steps, ratio) != (bounds.latency.steps, floor):
        said.append("reduce_scatter then all_gather, other forms are not ruled out")
    if refuted:
        form = " of this form" if collective.kind == "all_reduce" else ""
        if not routes_of(Network(topology, collective)).complete:
            form += " over shortest routes"
        said.append(f"no schedule{form} (bound or UNSAT) for (C, S, R) = " + ", ".join(refuted))
    if undecided:
        said.append("not decided in time: (C, S, R) = " + ", ".join(undecided))
    return replace(schedule, bounds=bounds, proof="; ".join(said)).fold()


def _cost(schedule: Schedule, size: int) -> float:
    """Seconds at `size` bytes when steps are barriers, each waiting for the slowest alpha in use."""
    used = set(schedule.expand().transfers.link.tolist())
    alpha = max((schedule.topology.links[link].alpha for link in used), default=0.0)
    return len(schedule.rounds) * alpha + float(size * schedule.seconds_per_byte())
