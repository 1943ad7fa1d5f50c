"""The k-synchronous scheduling problem as propositional logic, after Cai et al., SCCL (PPoPP'21), for z3.

An independent solver beside step_cp_sat.py and step_flow.py: slower, and sharing nothing but the list of sends.

    send(c, p, s)   chunk c takes route p in step s
    has(c, n, s)    rank n holds chunk c after step s
    more(s, j)      step s lasts more than j rounds

    (1) has(c, n, s)     ->  has(c, n, s-1)  or  some send(c, p, s) with p into n
    (2) send(c, u->v, s) ->  has(c, u, s-1)
    (3) every rank takes a chunk at most once
    (4) has(c, n, S) for all n in post(c)
    (5) sum of weights of sends over e in step s  <=  capacity(e) * (1 + sum over j of more(s, j))
    (6) the sum of all more(s, j) is R - S

SCCL has an integer for the step of each arrival; here each step has its own Booleans, so that all constraints are
clauses and pseudo-Boolean.
Symmetry is as in step_cp_sat.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from syntony.base.deadline import Deadline, wall
from syntony.synth.engines.sccl.step_problem import (
    Answer,
    Instance,
    RouteAction,
    Send,
    capacities,
    orbit_leaders,
    possible_sends,
    useful,
)


def solve(instance: Instance, seconds: float, actions: Sequence[RouteAction] = ()) -> Answer:
    """Sends that solve the instance; False if it is proven that there are none; None if the time ran out."""
    import z3

    deadline = Deadline(seconds)
    sends = possible_sends(instance)
    leader = orbit_leaders(sends, actions)
    context = z3.Context()
    solver = z3.SolverFor("QF_FD", ctx=context)
    variables = {send: z3.Bool(f"s{number}", context) for number, send in enumerate(dict.fromkeys(leader.values()))}
    taken = {send: variables[leader[send]] for send in sends}
    if not _add_arrivals(z3, context, solver, instance, taken):
        return False
    _add_capacities(z3, context, solver, instance, taken)
    left = wall(deadline.left())
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
    return useful(instance, chosen)


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
