"""Stage 1, routing: which edges carry which chunk, without deciding in which order.

    minimize T     every chunk reaches each rank that wants it by one edge, and is sent only by ranks that have it
                   start[c, dst] >= start[c, src] + latency           where edge (src, dst) carries chunk c
                   T >= start[c, r]                                   every rank that wants c
                   T >= load of the link, in seconds                  for every link

Chunks do not wait for each other here, so T is a lower bound for schedules with these edges, and its least value one
for all schedules that the sketch allows. Shah et al., TACCL (NSDI'23), solve it with Gurobi; here CP-SAT does, in whole
units of time, starting from grown trees (trees.py). If the sketch asks for few (or many) connections, they are counted
among the routings of least T. One set of variables represents an orbit of the symmetry.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony.synth.engines import cp_sat
from syntony.synth.engines.taccl.task import Task

MOST_VARIABLES = 60_000
"""With more variables, only grown trees are used."""
WORKERS = 4


@dataclass(frozen=True, eq=False)
class Routing:
    """
    chosen  (C, E): which edges carry which chunk
    least   seconds below which no schedule of the sketch is, as far as proven; 0 where nothing is
    """

    chosen: NDArray[np.bool_]
    least: float


def route(task: Task, start: NDArray[np.bool_], unit: float, timeout: float) -> Routing:
    """The best routing found in `timeout` seconds, from `start`; `unit` is one unit of time in seconds."""
    pairs = np.unique(task.pairs[task.usable])
    if len(pairs) > MOST_VARIABLES or not len(pairs) or timeout <= 0:
        return Routing(start, 0.0)
    from ortools.sat.python import cp_model

    edges = len(task.logical.edges)
    latency = np.ceil(task.latency / unit).astype(np.int64)
    model = cp_model.CpModel()
    horizon = 4 * int(latency.max()) * task.collective.ranks + int(_busy(task, start, unit).max())
    least = model.new_int_var(0, horizon, "T")
    taken = {pair: model.new_bool_var("") for pair in pairs.tolist()}
    begun: dict[int, Any] = {}

    def starts(chunk: int, rank: int) -> Any:
        place = int(task.places[chunk, rank])
        if place not in begun:
            begun[place] = 0 if rank == task.home[chunk] else model.new_int_var(0, horizon, "")
        return begun[place]

    src, dst = (ends.tolist() for ends in task.logical.ends)
    box = task.logical.box.tolist()
    for chunk in task.representatives.tolist():
        entering: defaultdict[int, list[Any]] = defaultdict(list)
        into: defaultdict[int, list[Any]] = defaultdict(list)
        usable = np.flatnonzero(task.usable[chunk]).tolist()
        for edge in usable:
            into[dst[edge]].append(taken[int(task.pairs[chunk, edge])])
            if box[src[edge]] != box[dst[edge]]:
                entering[box[dst[edge]]].append(into[dst[edge]][-1])
        for rank, arriving in into.items():
            if rank in task.wanted[chunk]:
                model.add_exactly_one(arriving)
                model.add(least >= starts(chunk, rank))
            else:
                model.add_at_most_one(arriving)
        # Implied, and what makes the linear relaxation tight: a chunk enters every other box that wants it.
        for wanting in {box[rank] for rank in task.wanted[chunk]} - {box[task.home[chunk]]}:
            model.add_bool_or(entering[wanting])
        for edge in usable:
            carried = taken[int(task.pairs[chunk, edge])]
            arrival = starts(chunk, src[edge]) + int(latency[chunk, edge])
            model.add(starts(chunk, dst[edge]) >= arrival).only_enforce_if(carried)
            if src[edge] != task.home[chunk] and src[edge] not in task.wanted[chunk]:
                model.add_bool_or(into[src[edge]]).only_enforce_if(carried)
    _add_loads(task, model, taken, least, unit)
    connections = _connections(task, model, taken)
    weight = len(connections) + 1
    sign = {"few": 1, "many": -1, "any": 0}[task.logical.sketch.connections]
    model.minimize(weight * least + sign * sum(connections))
    for pair, variable in taken.items():
        model.add_hint(variable, bool(start[pair // edges, pair % edges]))

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = WORKERS
    status = cp_sat.solve(solver, model, timeout)
    # Without a solution in time, the start it is; the model has one, so it is never infeasible.
    chosen = start
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        values = np.zeros(task.usable.size, bool)
        values[[pair for pair, variable in taken.items() if solver.value(variable)]] = True
        chosen = _needed(task, values[task.pairs] & task.usable)
    bound = solver.best_objective_bound
    proven = bound / weight if sign <= 0 else (bound - len(connections)) / weight
    return Routing(chosen, max(0, int(np.ceil(proven - 1e-6))) * unit)


def _busy(task: Task, chosen: NDArray[np.bool_], unit: float) -> NDArray[np.float64]:
    """(links,): load of every link, in units of time."""
    busy = np.zeros(len(task.logical.network.topology.links))
    np.add.at(busy, task.links, (task.bytes @ chosen)[:, None] * task.pace)
    return np.asarray(np.ceil(busy / unit))


def _add_loads(task: Task, model: Any, taken: dict[int, Any], least: Any, unit: float) -> None:
    """T is at least the load of any link; links with the same load are written down once."""
    loads: defaultdict[int, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    chunks, edges = np.nonzero(task.usable)
    pairs = task.pairs[chunks, edges]
    for column in range(task.links.shape[1]):
        pace = task.pace[edges, column]
        units = np.rint(task.bytes[chunks] * pace / unit).astype(np.int64)
        links = task.links[edges, column]
        for pair, link, amount in zip(pairs.tolist(), links.tolist(), units.tolist(), strict=True):
            if amount:
                loads[link][pair] += amount
    for terms in {tuple(sorted(terms.items())) for terms in loads.values()}:
        model.add(least >= sum(amount * taken[pair] for pair, amount in terms))


def _connections(task: Task, model: Any, taken: dict[int, Any]) -> list[Any]:
    """One variable per pair of ranks of a box (one for all that are alike): whether it carries anything."""
    if task.logical.sketch.connections == "any":
        return []
    src, dst = task.logical.ends
    inside = task.logical.box[src] == task.logical.box[dst]
    users: defaultdict[int, set[int]] = defaultdict(set)
    alike = task.edge_to.min(axis=0)
    for chunk, edge in zip(*np.nonzero(task.usable & inside), strict=True):
        users[int(alike[edge])].add(int(task.pairs[chunk, edge]))
    found = []
    for pairs in users.values():
        used = model.new_bool_var("")
        model.add_max_equality(used, [taken[pair] for pair in sorted(pairs)])
        found.append(used)
    return found


def _needed(task: Task, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Without edges that lead to no rank that wants the chunk."""
    src, dst = task.logical.ends
    needed = np.zeros_like(chosen)
    for chunk, wanted in enumerate(task.wanted):
        by = {int(dst[edge]): int(edge) for edge in np.flatnonzero(chosen[chunk])}
        for end in wanted:
            while end != task.home[chunk] and not needed[chunk, by[end]]:
                needed[chunk, by[end]] = True
                end = int(src[by[end]])
    return needed
