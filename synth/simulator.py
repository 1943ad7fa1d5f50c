"""The simulator of Schedules; that of Programs is synth/program_simulator.py.

    lane 0 -> 1   [== chunk 0 ==][== chunk 4 ==]
                                ·· alpha ··▶ 1 holds chunk 0
    lane 1 -> 2                              [== chunk 0 ==]

A transfer starts when its source holds its value and its predecessor on the lane (same source, destination and route)
has put its last byte on the wire. What happens on the wires is in synth/flows.py. Adding costs nothing; steps are no
barriers. Switches that are agents hold values as ranks do: a transfer into one that adds ends there, and the sum leaves
once all operands are there; cut into slices, a message streams through them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synth.bounds.throughput import bounds_of
from synth.flows import simulate_flows
from synth.moves import Moves, flows_of, moves_of
from synth.representatives import representatives_of
from synth.schedule import Schedule
from synth.simulation import Messages, Simulation, StuckError
from synth.utilization import LinkRates


def simulate(
    schedule: Schedule,
    size: int,
    slice_bytes: int | None = None,
    every_message: bool = False,
    timeline: bool = False,
) -> Simulation:
    """Simulates `size` bytes (as `Collective` defines size). Raises StuckError where a transfer can never start.

    slice_bytes    a message's most bytes; default: every transfer is one message
    every_message  expands a schedule with symmetry, and returns its messages; else it is simulated by representatives
                   where that is exact (synth/representatives.py), and no messages are returned
    timeline       keeps the rates of links over time

    Bounds are the schedule's own, or computed where it has none.
    """
    topology, collective = schedule.topology, schedule.collective
    found = representatives_of(schedule) if schedule.symmetry and not every_message else None
    whole = schedule if found else schedule.expand()
    moves = found.moves if found else moves_of(whole)
    moved = flows_of(moves, topology, collective, size, slice_bytes)
    times = simulate_flows(moved.flows, timeline=timeline)
    start = moved.transfers(times.start)
    if np.isinf(start).any():
        raise _stuck(whole, moves, np.flatnonzero(np.isinf(start.reshape(moved.slices, -1)).any(axis=0)))
    carried = moved.transfers(moved.flows.bytes).reshape(moved.slices, -1).sum(axis=0)
    load = _load(moves, carried, len(topology.links))
    rates = LinkRates(times.times, times.link, times.rate) if timeline else None
    if found:
        load, rates = found.spread(load), rates and found.spread_rates(rates)
    messages = Messages.none()
    if not found:
        messages = Messages(
            np.tile(np.arange(len(moves)), moved.slices),
            np.repeat(np.arange(moved.slices), len(moves)),
            np.tile(moves.lane, moved.slices),
            start,
            moved.transfers(times.left),
            moved.transfers(times.arrival),
        )
    return Simulation(
        whole,
        topology,
        collective,
        size,
        times.seconds,
        (schedule.bounds or bounds_of(topology, collective)).seconds(size),
        [moves.paths.links(lane) for lane in range(len(moves.latency) - 1)],
        messages,
        load / moved.flows.capacity,
        rates,
    )


def _load(moves: Moves, carried: NDArray[np.float64], links: int) -> NDArray[np.float64]:
    """Bytes over every link."""
    paths = moves.paths
    per_lane = np.bincount(moves.lane, carried, minlength=len(moves.latency))
    loads = np.repeat(per_lane, np.diff(paths.path_offset)) * paths.weight
    return np.bincount(paths.link, loads, minlength=links).astype(float)


def _stuck(schedule: Schedule, moves: Moves, stuck: NDArray[np.signedinteger]) -> StuckError:
    """Names the first of the transfers that never start, by step."""
    first = int(stuck[np.argmin(moves.step[stuck])])
    src, dst, value = (int(column[first]) for column in (moves.src, moves.dst, moves.need))
    return StuckError(
        f"transfer {first} (value {value}, {schedule.name_of(src)} -> {dst}, step {moves.step[first]}) never starts: "
        f"{schedule.name_of(src)} never holds value {value}"
    )
