"""The k-synchronous scheduling problem (Cai et al., SCCL, PPoPP'21), independent of its solvers.

Given steps S and rounds R, find which chunk takes which route in which step, so that every demand is met and some
division of R into r_1 + .. + r_S (each at least 1) gives every link its capacity: in step s link e carries at most
r_s * capacity(e) units of chunk weight, capacity(e) = bandwidth(e) / round_bandwidth.

    step_cp_sat.py    chunks that several ranks want: Booleans, CP-SAT
    step_flow.py      chunks that one rank wants: whole flows, CP-SAT
    step_z3.py        all of them by propositional logic, z3: an independent solver
    step_bound.py     the fewest rounds of S steps, by linear programming
    step_symmetry.py  groups under which a schedule may be invariant

Only useful sends are considered: not before the chunk can have arrived (distance from the holders), and not too late
for it to reach a rank that wants it (distance to these ranks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from syntony.synth.model.network import Network, round_bandwidth
from syntony.synth.model.routes import Route


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
    """A symmetry as permutations of chunks and routes: entry i is the image of i."""

    chunks: tuple[int, ...]
    routes: tuple[int, ...]


Answer = list[Send] | Literal[False] | None
"""Sends that solve an instance; or that there are none is proven; or the time ran out."""


def possible_sends(instance: Instance) -> list[Send]:
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


def orbit_leaders(sends: Sequence[Send], actions: Sequence[RouteAction]) -> dict[Send, Send]:
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


def useful(instance: Instance, chosen: list[Send]) -> list[Send]:
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
