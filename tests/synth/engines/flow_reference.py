"""The flow simulator once more, in plain Python and without haste: what the core is compared with."""

from __future__ import annotations

import math

import numpy as np

from syntony.synth.simulation.flows import Flows, PathPolicy

Loads = dict[int, float]
"""Per link, the bytes that it carries per byte of a flow."""


def fair_rates(loads: list[Loads], capacity: list[float]) -> list[float]:
    """Max-min fair rates by progressive filling: all unsettled flows rise until some link is full."""
    rates = [math.inf] * len(loads)
    rising = set(range(len(loads)))
    while rising:
        levels = {}
        for link, most in enumerate(capacity):
            weight = sum(loads[flow].get(link, 0.0) for flow in rising)
            taken = sum(loads[flow].get(link, 0.0) * rates[flow] for flow in range(len(loads)) if flow not in rising)
            if weight:
                levels[link] = (most - taken) / weight
        least = min(levels.values())
        full = {link for link, level in levels.items() if level <= least * (1 + 1e-9)}
        settled = {flow for flow in rising if full & set(loads[flow])}
        for flow in settled:
            rates[flow] = least
        rising -= settled
    return rates


def simulate(flows: Flows) -> list[tuple[float, float, float, int]]:
    """(start, left, arrival, path) of every flow."""
    count, capacity = len(flows), flows.capacity.tolist()
    now, remaining, loads = 0.0, flows.bytes.tolist(), [Loads() for _ in range(count)]
    start, left, arrival = ([math.inf] * count for _ in range(3))
    taken = [-1] * count
    after = [flows.after[a:b].tolist() for a, b in zip(flows.after_offset, flows.after_offset[1:], strict=False)]
    after_left = [
        flows.after_left[a:b].tolist()
        for a, b in zip(flows.after_left_offset, flows.after_left_offset[1:], strict=False)
    ]
    while True:
        # Everything that happens now, in rounds, until nothing more does.
        moved = True
        while moved:
            moved = False
            for flow in range(count):
                if start[flow] <= now and left[flow] == math.inf and (remaining[flow] <= 1e-9 or not loads[flow]):
                    left[flow], arrival[flow], moved = now, now + float(flows.latency[flow]), True
            for flow in range(count):
                held = max(
                    [0.0] + [arrival[other] for other in after[flow]] + [left[other] for other in after_left[flow]]
                )
                if start[flow] == math.inf and max(held, flows.release[flow]) <= now * (1 + 1e-12):
                    under_way = [other for other in range(count) if start[other] <= now and left[other] == math.inf]
                    backlog = {
                        link: sum(float(flows.bytes[other]) * loads[other].get(link, 0.0) for other in under_way)
                        for link in range(len(capacity))
                    }
                    loads[flow], taken[flow] = _way(flows, flow, backlog)
                    start[flow], moved = now, True
        streaming = [flow for flow in range(count) if start[flow] <= now and left[flow] == math.inf]
        rates = dict(zip(streaming, fair_rates([loads[flow] for flow in streaming], capacity), strict=True))
        moments = [now + remaining[flow] / rates[flow] for flow in streaming]
        moments += [arrival[flow] for flow in range(count) if now * (1 + 1e-12) < arrival[flow] < math.inf]
        moments += [float(release) for release in flows.release if release > now]
        if not moments:
            return list(zip(start, left, arrival, taken, strict=True))
        then = min(moments)
        for flow in streaming:
            remaining[flow] = max(0.0, remaining[flow] - rates[flow] * (then - now))
        now = then


def _way(flows: Flows, flow: int, backlog: Loads) -> tuple[Loads, int]:
    paths = flows.paths
    choices = list(range(paths.set_offset[flows.set[flow]], paths.set_offset[flows.set[flow] + 1]))
    if flows.policy[flow] == PathPolicy.fixed:
        choices = choices[:1]
    if flows.policy[flow] == PathPolicy.least_loaded:
        to_do = {path: [backlog[link] / flows.capacity[link] for link in paths.links(path)] for path in choices}
        # Rounded, because sums in another order are not other loads.
        worst = {path: float(f"{max(to_do[path], default=0.0):.9g}") for path in choices}
        choices = [min(choices, key=lambda path: (worst[path], float(f"{sum(to_do[path]):.9g}"), path))]
    loads = Loads()
    for path in choices:
        for hop in range(paths.path_offset[path], paths.path_offset[path + 1]):
            link = int(paths.link[hop])
            loads[link] = loads.get(link, 0.0) + float(paths.weight[hop]) / len(choices)
    return loads, int(np.int32(choices[0] if len(choices) == 1 else -1))
