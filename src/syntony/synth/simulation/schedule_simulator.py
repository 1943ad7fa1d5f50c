"""The simulator of Schedules; that of Programs is simulation/program_simulator.py.

    lane 0 -> 1   [== chunk 0 ==][== chunk 4 ==]
                                ·· alpha ··▶ 1 holds chunk 0
    lane 1 -> 2                              [== chunk 0 ==]

A transfer starts when its source holds its value and its predecessor on the lane (same source, destination and route)
has put its last byte on the wire. simulation/flows.py describes the wires. Adding costs nothing; steps are not
barriers. Switches that are agents hold values as ranks do: a transfer into one that adds ends there, and the sum leaves
once all operands are there; cut into slices, a message streams through them. Other switches cut through, or store and
forward (simulation/store_and_forward.py). The input rate of a switch that adds, and the capacity of its slots, are
shared like a link by the transfers that it adds; for store and forward, it is a hop of its own.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from syntony.base.rows import ascending
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.flows import simulate_flows
from syntony.synth.simulation.moves import MovedFlows, Moves, flows_of, moves_of
from syntony.synth.simulation.representatives import representatives_of
from syntony.synth.simulation.result import Messages, Simulation, StuckError
from syntony.synth.simulation.store_and_forward import hop_by_hop
from syntony.synth.simulation.utilization import LinkRates
from syntony.synth.symmetry.groups import expand

Switching = Literal["cut-through", "store-and-forward"]


def simulate(
    schedule: Schedule,
    size: int,
    slice_bytes: int | None = None,
    switching: Switching = "cut-through",
    every_message: bool = False,
    timeline: bool = False,
    listed: bool = False,
) -> Simulation:
    """Simulates `size` bytes (as `Collective` defines size). Raises StuckError if a transfer can never start.

    slice_bytes    the largest message; default: every transfer is one message
    every_message  expands a symmetric schedule, and returns its messages; otherwise it is simulated by representatives
                   if that is exact (simulation/representatives.py), and no messages are returned
    timeline       keeps the rates of links over time
    listed         returns the messages of the listed transfers of a schedule that is simulated by representatives;
                   their images happen at the same times. For switches that cut through
    """
    topology, collective = schedule.topology, schedule.collective
    found = representatives_of(schedule) if schedule.symmetry and not every_message else None
    whole = schedule if found else expand(schedule)
    moves = found.moves if found else moves_of(whole)
    moved = flows_of(moves, collective, size, slice_bytes)
    links = len(topology.links)
    alphas = np.asarray([link.alpha for link in topology.links] + [0.0] * (len(moves.capacity) - links))
    hops = hop_by_hop(moved.flows, alphas) if switching == "store-and-forward" else None
    times = simulate_flows(hops.flows if hops else moved.flows, timeline=timeline)
    stuck = np.isinf(times.start[hops.first] if hops else times.start)
    if stuck.any():
        raise _stuck(whole, moves, ascending(np.flatnonzero(stuck) % (len(stuck) // moved.slices)))
    load = _load(moves, moved)[:links]
    of_links = times.link < links
    rates = LinkRates(times.times[of_links], times.link[of_links], times.rate[of_links]) if timeline else None
    if found:
        load, rates = found.spread(load), rates and found.spread_rates(rates)
    flow = hops.owner if hops else np.arange(len(moved.flows))
    sets = hops.flows.set if hops else moved.flows.set
    number, row = np.divmod(flow, len(moved.flows) // moved.slices)
    shown = np.flatnonzero(row < (0 if found else len(moves)))
    paths = hops.flows.paths if hops else moves.paths
    routes = paths.all_links()
    if len(moves.capacity) > links:  # without the limits that are no links
        routes = [tuple(link for link in route if link < links) for route in routes]
    names, path = row[shown], sets[shown]
    if found and listed:
        names = np.tile(np.arange(len(found.move_of)), moved.slices)
        shown = (np.arange(moved.slices)[:, None] * (len(moved.flows) // moved.slices) + found.move_of).reshape(-1)
        routes, path = [schedule.transfers.route(transfer) for transfer in range(len(found.move_of))], names
    return Simulation(
        whole,
        topology,
        collective,
        size,
        times.seconds,
        routes,
        Messages(names, number[shown], path, times.start[shown], times.left[shown], times.arrival[shown]),
        load / moves.capacity[:links],
        rates,
        schedule.bounds,
    )


def _load(moves: Moves, moved: MovedFlows) -> NDArray[np.float64]:
    """Bytes over every link and limit."""
    paths = moves.paths
    per_path = np.bincount(moved.flows.set, moved.flows.bytes, minlength=len(moves.latency))
    loads = np.repeat(per_path, np.diff(paths.path_offset)) * paths.weight
    return np.bincount(paths.link, loads, minlength=len(moves.capacity)).astype(float)


def _stuck(schedule: Schedule, moves: Moves, never: NDArray[np.signedinteger]) -> StuckError:
    """Names the first of the transfers that never start, by step."""
    stuck = never[never < len(moves)]  # not the sums
    first = int(stuck[np.argmin(moves.step[stuck])])
    src, dst, value = (int(column[first]) for column in (moves.src, moves.dst, moves.need))
    ends = f"{schedule.name_of(src)} -> {schedule.name_of(dst).removeprefix('rank ')}"
    return StuckError(
        f"transfer {first} (value {value}, {ends}, step {moves.step[first]}) never starts: "
        f"{schedule.name_of(src)} never holds value {value}"
    )
