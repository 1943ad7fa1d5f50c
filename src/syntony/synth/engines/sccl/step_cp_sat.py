"""The k-synchronous scheduling problem with Booleans per step, for the constraint solver CP-SAT of OR-tools.

    send(c, p, s)   chunk c takes route p in step s
    rounds(s)       how long step s lasts, a whole number from 1

    (1) the sends of c into n: exactly one where n wants c, else at most one
    (2) send(c, u->v, s)  <=  the sum of all sends of c into u before step s
    (3) the sum of weights of sends over e in step s  <=  capacity(e) * rounds(s)
    (4) the sum of all rounds(s) is R

By (1) the sum in (2) is 0 or 1: whether u holds the chunk. So no variables for holding are needed, and the linear
relaxation is tight. step_problem.py lists the possible sends.

Symmetry: with `actions`, sends in one orbit share one variable, so only invariant schedules are considered. A
schedule found this way is valid; if none is found, nothing is proven, and the caller tries again without symmetry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from syntony.base.deadline import Deadline
from syntony.synth.engines import cp_sat
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

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

SEED = 1


def solve(instance: Instance, seconds: float, actions: Sequence[RouteAction] = (), effort: float = 0.0) -> Answer:
    """Sends that solve the instance; False if it is proven that there are none; None if time or effort ran out.

    effort  in CP-SAT's deterministic seconds, which no other load on the machine changes; 0 for no limit
    """
    from ortools.sat.python import cp_model

    deadline = Deadline(seconds)
    sends = possible_sends(instance)
    leader = orbit_leaders(sends, actions)
    model = cp_model.CpModel()
    variables = {send: model.new_bool_var("") for send in dict.fromkeys(leader.values())}
    taken = {send: variables[leader[send]] for send in sends}
    if not _add_arrivals(model, instance, taken):
        return False
    _add_capacities(model, instance, taken)
    answer = decide(model, deadline.left(), effort)
    if answer is None or answer is False:
        return answer
    return useful(instance, [send for send in sends if answer.value(taken[send])])


def decide(model: cp_model.CpModel, seconds: float, effort: float) -> cp_model.CpSolver | Literal[False] | None:
    """A solver that holds values; False if there are none, None if time or effort ran out. The same every time."""
    from ortools.sat.python import cp_model

    if seconds <= 0:
        return None
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = SEED
    if effort:
        solver.parameters.max_deterministic_time = effort
    status = cp_sat.solve(solver, model, seconds)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return solver
    if status == cp_model.INFEASIBLE:
        return False
    assert status == cp_model.UNKNOWN, solver.status_name(status)
    return None


def add_rounds(model: cp_model.CpModel, instance: Instance) -> list[cp_model.IntVar]:
    """(4): the variables rounds(s)."""
    longest = instance.rounds - instance.steps + 1
    rounds = [model.new_int_var(1, longest, "") for _ in range(instance.steps)]
    model.add(sum(rounds) == instance.rounds)
    return rounds


def _add_arrivals(model: cp_model.CpModel, instance: Instance, taken: dict[Send, cp_model.IntVar]) -> bool:
    """(1) and (2); False where a demand has no possible send."""
    collective = instance.network.collective
    into: dict[tuple[int, int], list[Send]] = {}
    for send in taken:
        into.setdefault((send.chunk, instance.routes[send.route].dst), []).append(send)
    chunks = range(len(collective.chunks))
    pre = [collective.pre(chunk) for chunk in chunks]
    post = [collective.post(chunk) for chunk in chunks]
    if any((chunk, rank) not in into for chunk in chunks for rank in post[chunk] - pre[chunk]):
        return False
    for (chunk, rank), arrivals in into.items():
        options = [taken[send] for send in arrivals]
        distinct = len(set(map(id, options))) == len(options)
        if rank in post[chunk]:
            if distinct:
                model.add_exactly_one(options)
            else:
                model.add(sum(options) == 1)
        elif distinct:
            model.add_at_most_one(options)
        else:
            model.add(sum(options) <= 1)
    for send, variable in taken.items():
        src = instance.routes[send.route].src
        if src in pre[send.chunk]:
            continue
        earlier = [taken[other] for other in into.get((send.chunk, src), ()) if other.step < send.step]
        model.add(variable <= sum(earlier))
    return True


def _add_capacities(model: cp_model.CpModel, instance: Instance, taken: dict[Send, Any]) -> None:
    """(3) and (4)."""
    rounds = add_rounds(model, instance)
    capacity, weight = capacities(instance.network), instance.network.collective.chunks.weight.tolist()
    load: dict[tuple[int, int], list[tuple[Any, int]]] = {}
    for send, variable in taken.items():
        for link in instance.routes[send.route].links:
            load.setdefault((link, send.step), []).append((variable, weight[send.chunk]))
    for (link, step), terms in load.items():
        if sum(units for _, units in terms) > capacity[link]:
            model.add(sum(variable * units for variable, units in terms) <= capacity[link] * rounds[step])
