"""The k-synchronous scheduling problem of chunks that one rank each wants, as flows of whole chunks, for CP-SAT.

Equal chunks of one source, for any destinations, are one flow through the network unrolled over steps (or those of one
destination, from any sources):

    step       0          1          2            moves(f, p, s)  how many chunks of flow f take route p in step s
    rank 0    (0)──held──▶(0)──held──▶(0)          held(f, n, s)   how many of them rank n holds after step s
                 ╲sent       ╲
    rank 1    (1)  ─────▶(1)──  ─────▶(1)         held(f, n, s) = held(f, n, s-1) + arriving - leaving

An integer flow with one source (or one destination) is a sum of paths, so each chunk can be given one afterwards.
Nothing is lost, and the number of variables depends on ranks, not on chunks.
Rounds and capacities are as in step_cp_sat.py. all_to_all, gather and scatter are of this kind.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syntony.base.deadline import Deadline
from syntony.synth.engines.sccl.step_cp_sat import add_rounds, decide
from syntony.synth.engines.sccl.step_problem import Answer, Instance, Send, capacities

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


@dataclass(frozen=True)
class Commodity:
    """Chunks of one weight with one source, or with one destination: their numbers, by (source, destination)."""

    weight: int
    chunks: dict[tuple[int, int], list[int]]

    def at(self, end: int) -> dict[int, int]:
        """How many chunks each rank starts with (end 0) or ends with (end 1)."""
        count: dict[int, int] = defaultdict(int)
        for pair, chunks in self.chunks.items():
            count[pair[end]] += len(chunks)
        return dict(count)


def applies(instance: Instance) -> bool:
    """Whether each chunk starts at one rank and is wanted by one."""
    collective = instance.network.collective
    chunks = range(len(collective.chunks))
    return all(len(collective.pre(chunk)) == len(collective.post(chunk)) == 1 for chunk in chunks)


def solve(instance: Instance, seconds: float) -> Answer:
    """Sends that solve the instance; False if it is proven that there are none; None if the time ran out."""
    from ortools.sat.python import cp_model

    deadline = Deadline(seconds)
    model = cp_model.CpModel()
    rounds = add_rounds(model, instance)
    load: dict[tuple[int, int], list[cp_model.LinearExprT]] = defaultdict(list)
    commodities = commodities_of(instance)
    moves = []
    for commodity in commodities:
        mine = _add_flow(model, instance, commodity)
        if mine is None:
            return False
        moves.append(mine)
        for (route, step), amount in mine.items():
            for link in instance.routes[route].links:
                load[link, step].append(amount * commodity.weight)
    capacity = capacities(instance.network)
    for (link, step), terms in load.items():
        model.add(sum(terms) <= capacity[link] * rounds[step])
    answer = decide(model, deadline.left(), 0.0)
    if answer is None or answer is False:
        return answer
    sends: list[Send] = []
    for commodity, mine in zip(commodities, moves, strict=True):
        sends += _paths(instance, commodity, {key: answer.value(amount) for key, amount in mine.items()})
    return sorted(sends, key=lambda send: (send.step, send.route, send.chunk))


def commodities_of(instance: Instance) -> list[Commodity]:
    """The chunks as flows by source, or by destination where these are fewer; what is already there does not flow."""
    collective = instance.network.collective
    ends = [(min(collective.pre(chunk)), min(collective.post(chunk))) for chunk in range(len(collective.chunks))]
    moving = [chunk for chunk, (src, dst) in enumerate(ends) if src != dst]
    shared = 1 if len({ends[chunk][1] for chunk in moving}) < len({ends[chunk][0] for chunk in moving}) else 0
    found: dict[tuple[int, int], Commodity] = {}
    for chunk in moving:
        weight = int(collective.chunks.weight[chunk])
        commodity = found.setdefault((ends[chunk][shared], weight), Commodity(weight, defaultdict(list)))
        commodity.chunks[ends[chunk]].append(chunk)
    return list(found.values())


def _add_flow(
    model: cp_model.CpModel, instance: Instance, commodity: Commodity
) -> dict[tuple[int, int], cp_model.IntVar] | None:
    """Variables moves(f, p, s) of one flow, by (p, s), and its conservation; None where some rank is out of reach."""
    hops, steps = instance.network.hops, instance.steps
    start, end = commodity.at(0), commodity.at(1)
    first = hops[list(start)].min(axis=0)
    last = steps - hops[:, list(end)].min(axis=1)
    total = sum(start.values())
    if any(first[dst] > steps for dst in end) or any(last[src] < 0 for src in start):
        return None
    moves = {
        (number, step): model.new_int_var(0, total, "")
        for number, route in enumerate(instance.routes)
        for step in range(steps)
        if first[route.src] <= step < last[route.dst]
    }
    leaving: dict[tuple[int, int], list[cp_model.IntVar]] = defaultdict(list)
    arriving: dict[tuple[int, int], list[cp_model.IntVar]] = defaultdict(list)
    for (number, step), amount in moves.items():
        leaving[instance.routes[number].src, step].append(amount)
        arriving[instance.routes[number].dst, step].append(amount)
    for rank in range(instance.network.collective.ranks):
        held: Any = start.get(rank, 0)
        for step in range(steps):
            out, coming = leaving[rank, step], arriving[rank, step]
            if out:
                model.add(sum(out) <= held)
            if out or coming:
                after = model.new_int_var(0, total, "")
                model.add(after == held + sum(coming) - sum(out))
                held = after
        model.add(held == end.get(rank, 0))
    return moves


def _paths(instance: Instance, commodity: Commodity, moves: dict[tuple[int, int], int]) -> list[Send]:
    """Each chunk's sends: one path after another is taken out of the flow, and goes to a chunk of its two ends."""
    leaving: dict[tuple[int, int], list[int]] = defaultdict(list)
    for (route, step), count in moves.items():
        leaving[instance.routes[route].src, step] += [route] * count
    sends = []
    for src, count in commodity.at(0).items():
        for _ in range(count):
            # What can leave does, so what is left over is a flow again.
            path: list[tuple[int, int]] = []
            rank = src
            for step in range(instance.steps):
                if leaving[rank, step]:
                    route = leaving[rank, step].pop()
                    path.append((route, step))
                    rank = instance.routes[route].dst
            chunk = commodity.chunks[src, rank].pop()
            sends += [Send(chunk, route, step) for route, step in _without_circles(instance, src, path)]
    return sends


def _without_circles(instance: Instance, src: int, path: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The path (routes and steps) without the ways that lead back to a rank: the chunk waits there instead."""
    kept: list[tuple[int, int]] = []
    seen = [src]
    for route, step in path:
        rank = instance.routes[route].dst
        if rank in seen:
            kept = kept[: seen.index(rank)]
            seen = seen[: seen.index(rank) + 1]
        else:
            kept.append((route, step))
            seen.append(rank)
    return kept
