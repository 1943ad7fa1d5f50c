"""The k-synchronous scheduling problem as propositional logic, after Cai et al., SCCL (PPoPP'21), for z3.

Given steps S and rounds R, find which chunk takes which route in which step, so that every demand is met and some
division of R into r_1 + .. + r_S (each at least 1) gives every link its capacity: in step s link e carries at most
r_s * bandwidth(e) / round_bandwidth units of chunk weight.

    send(c, p, s)   chunk c takes route p in step s
    has(c, n, s)    rank n holds chunk c after step s
    more(s, j)      step s lasts more than j rounds

    (1) has(c, n, s)     ->  has(c, n, s-1)  or  some send(c, p, s) with p into n
    (2) send(c, u->v, s) ->  has(c, u, s-1)
    (3) every rank takes a chunk at most once
    (4) has(c, n, S) for all n in post(c)
    (5) sum of weights of sends over e in step s  <=  capacity(e) * (1 + sum over j of more(s, j))
    (6) the sum of all more(s, j) is R - S

SCCL numbers the step of each arrival; here each step has its own Booleans, so all is clauses and pseudo-Booleans.
A send exists only where it can matter: not before its chunk can have come (distance from the holders), and not after
its chunk could still be of use (distance to the ranks that want it).

Symmetry: with `actions`, sends in one orbit share one variable, so only invariant schedules are considered. What is
found so is a schedule like any other; that nothing is found so proves nothing, and the caller asks again without.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from synth.network import Network
from synth.routes import Route
from synth.schedule import round_bandwidth


@dataclass(frozen=True)
class Instance:
    """A problem: a collective that sums nothing, in `steps` steps and at most `rounds` rounds, rounds >= steps >= 1."""

    network: Network
    routes: Sequence[Route]
    steps: int
    rounds: int


@dataclass(frozen=True)
class Send:
    """Chunk `chunk` takes route number `route` in step `step` (from 0)."""

    chunk: int
    route: int
    step: int


@dataclass(frozen=True)
class RouteAction:
    """What a symmetry does to chunks and routes: entry i is where i goes."""

    chunks: tuple[int, ...]
    routes: tuple[int, ...]


def solve(instance: Instance, seconds: float, actions: Sequence[RouteAction] = ()) -> list[Send] | bool | None:
    """Sends that solve the instance; False if it is proven that there are none; None if the time ran out."""
    import z3

    deadline = time.monotonic() + seconds
    sends = _possible_sends(instance)
    leader = _orbit_leaders(sends, actions)
    context = z3.Context()
    solver = z3.SolverFor("QF_FD", ctx=context)
    variables = {send: z3.Bool(f"s{number}", context) for number, send in enumerate(dict.fromkeys(leader.values()))}
    taken = {send: variables[leader[send]] for send in sends}
    if not _add_arrivals(z3, context, solver, instance, taken):
        return False
    _add_capacities(z3, context, solver, instance, taken)
    left = deadline - time.monotonic()
    if left <= 0:
        return None
    solver.set("timeout", max(1, int(left * 1000)))
    answer = solver.check()
    if answer == z3.unknown:
        return None
    if answer == z3.unsat:
        return False
    model = solver.model()
    chosen = [send for send, variable in taken.items() if z3.is_true(model.eval(variable))]
    return _useful(instance, chosen)


def _possible_sends(instance: Instance) -> list[Send]:
    """All sends that distance and usefulness allow, by chunk, route, step."""
    collective, hops = instance.network.collective, instance.network.hops
    sends = []
    for chunk in range(len(collective.chunks)):
        first = hops[sorted(collective.pre(chunk))].min(axis=0)
        last = instance.steps - hops[:, sorted(collective.post(chunk))].min(axis=1)
        for number, route in enumerate(instance.routes):
            if first[route.dst] == 0:
                continue
            lo, hi = first[route.src], min(last[route.dst], instance.steps)
            if np.isfinite(lo) and np.isfinite(hi):
                sends += [Send(chunk, number, step) for step in range(int(lo), int(hi))]
    return sends


def _orbit_leaders(sends: Sequence[Send], actions: Sequence[RouteAction]) -> dict[Send, Send]:
    """Per send, the one that stands for its orbit."""
    leader = {send: send for send in sends}

    def find(send: Send) -> Send:
        while leader[send] != send:
            leader[send] = leader[leader[send]]
            send = leader[send]
        return send

    for action in actions:
        for send in sends:
            image = Send(action.chunks[send.chunk], action.routes[send.route], send.step)
            leader[find(send)] = find(image)
    return {send: find(send) for send in sends}


def _add_arrivals(z3: Any, context: Any, solver: Any, instance: Instance, taken: dict[Send, Any]) -> bool:
    """Constraints (1) to (4); False where a demand has no possible send."""
    collective = instance.network.collective
    into: dict[tuple[int, int], list[Send]] = {}
    for send in taken:
        into.setdefault((send.chunk, instance.routes[send.route].dst), []).append(send)
    pre = [collective.pre(chunk) for chunk in range(len(collective.chunks))]
    for chunk in range(len(pre)):
        for rank in collective.post(chunk) - pre[chunk]:
            if (chunk, rank) not in into:
                return False
    has: dict[tuple[int, int, int], Any] = {}
    for (chunk, rank), arrivals in into.items():
        options = list(dict.fromkeys(taken[send] for send in arrivals))
        if rank in collective.post(chunk):
            solver.add(z3.Or(options))
        if len(arrivals) > 1:
            solver.add(z3.PbLe([(taken[send], 1) for send in arrivals], 1))
        before = None
        for step in sorted({send.step for send in arrivals}):
            now = [taken[send] for send in arrivals if send.step == step]
            holds = z3.Bool(f"h{chunk}_{rank}_{step}", context)
            solver.add(z3.Or([z3.Not(holds), *([before] if before is not None else []), *now]))
            has[chunk, rank, step] = before = holds
    for send, variable in taken.items():
        src = instance.routes[send.route].src
        if src in pre[send.chunk]:
            continue
        earlier = ((send.chunk, src, step) for step in range(send.step - 1, -1, -1))
        ready = next((has[key] for key in earlier if key in has), None)
        solver.add(z3.Not(variable) if ready is None else z3.Implies(variable, ready))
    return True


def _add_capacities(z3: Any, context: Any, solver: Any, instance: Instance, taken: dict[Send, Any]) -> None:
    """Constraints (5) and (6)."""
    spare = instance.rounds - instance.steps
    more = [[z3.Bool(f"r{s}_{j}", context) for j in range(spare)] for s in range(instance.steps)]
    for lasting in more:
        for fewer, further in pairwise(lasting):
            solver.add(z3.Implies(further, fewer))
    if spare:
        solver.add(z3.PbLe([(variable, 1) for lasting in more for variable in lasting], spare))
    capacity = capacities(instance.network)
    weight = instance.network.collective.chunks.weight.tolist()
    load: dict[tuple[int, int], list[tuple[Any, int]]] = {}
    for send, variable in taken.items():
        for link in instance.routes[send.route].links:
            load.setdefault((link, send.step), []).append((variable, weight[send.chunk]))
    for (link, step), terms in load.items():
        room = capacity[link]
        if sum(units for _, units in terms) > room:
            solver.add(z3.PbLe(terms + [(z3.Not(extra), room) for extra in more[step]], room * (1 + spare)))


def capacities(network: Network) -> list[int]:
    """Units of chunk weight per round, by link id."""
    unit = round_bandwidth(network.topology)
    return [int(link.bandwidth / unit) for link in network.topology.links]


def rounds_needed(instance: Instance, sends: Sequence[Send]) -> list[int]:
    """The least whole rounds that each step can last."""
    capacity, weight = capacities(instance.network), instance.network.collective.chunks.weight.tolist()
    load: dict[tuple[int, int], int] = {}
    for send in sends:
        for link in instance.routes[send.route].links:
            load[link, send.step] = load.get((link, send.step), 0) + weight[send.chunk]
    rounds = [1] * instance.steps
    for (link, step), units in load.items():
        rounds[step] = max(rounds[step], -(-units // capacity[link]))
    return rounds


def _useful(instance: Instance, chosen: list[Send]) -> list[Send]:
    """The sends that serve a demand, directly or through later sends, in order of step."""
    collective = instance.network.collective
    kept = []
    wanted = {(chunk, rank) for chunk in range(len(collective.chunks)) for rank in collective.post(chunk)}
    for send in sorted(chosen, key=lambda send: (-send.step, send.chunk, send.route)):
        route = instance.routes[send.route]
        if (send.chunk, route.dst) in wanted:
            wanted.add((send.chunk, route.src))
            kept.append(send)
    return sorted(kept, key=lambda send: (send.step, send.route, send.chunk))
