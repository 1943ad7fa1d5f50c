"""What every link carries in a Schedule, exactly; of a symmetric one without expanding it where that is possible.

    listed      0 ──▶ 1 of chunk 0          group of order 4, which turns the ring
    expanded    0 ──▶ 1, 1 ──▶ 2, ..        4 transfers on the 4 links of one orbit: 4 * weight / 4 on each

Where the group is free on ranks (synth/free_group.py) and every listed value's owner is a different orbit's only one,
no two listed transfers are of one orbit and none is its own image: each stands for as many as the group has elements,
and the links of an orbit carry the same. Everything else is expanded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synth.free_group import FreeGroup
from synth.link_orbits import link_orbits
from synth.schedule import Schedule
from synth.symmetry import chunk_permutation

Integers = NDArray[np.signedinteger]


def link_loads(schedule: Schedule) -> Integers:
    """(links,): units of chunk weight that each link carries."""
    loads: Integers = _loads(schedule, by_step=False)[0]
    return loads


def link_loads_by_step(schedule: Schedule) -> Integers:
    """(steps, links): units of chunk weight that each link carries in each step."""
    return _loads(schedule, by_step=True)


def _loads(schedule: Schedule, by_step: bool) -> Integers:
    """A row per step, or one row for all."""
    order = _order(schedule) if schedule.symmetry else 1
    if order is None:
        return _loads(schedule.expand(), by_step)
    step = schedule.transfers.step
    loads = _listed(schedule, step, schedule.steps) if by_step else _listed(schedule, np.zeros_like(step), 1)
    if not schedule.symmetry:
        return loads
    orbit = link_orbits(schedule.topology, [generator.nodes for generator in schedule.symmetry])
    total = np.zeros(loads.T.shape, np.int64)
    np.add.at(total, orbit, loads.T)
    spread: Integers = (total.T * order // np.bincount(orbit, minlength=loads.shape[1]).clip(1))[:, orbit]
    return spread


def _listed(schedule: Schedule, row: Integers, rows: int) -> Integers:
    """(rows, links): what the listed transfers load, transfer t in row[t]."""
    moved = schedule.transfers
    hops = np.diff(moved.offset)
    weight = schedule.collective.chunks.weight[schedule.values.chunk[moved.value]].astype(np.int64)
    links = len(schedule.topology.links)
    loads = np.zeros(rows * links, np.int64)
    np.add.at(loads, np.repeat(row.astype(np.int64) * links, hops) + moved.link, np.repeat(weight, hops))
    return loads.reshape(rows, links)


def _order(schedule: Schedule) -> int | None:
    """The order of the schedule's group, where each listed transfer stands for so many; None where it may not."""
    collective, values, moved = schedule.collective, schedule.values, schedule.transfers
    if collective.combining or collective.rooted or schedule.in_network or (values.rank < 0).any():
        return None
    nodes = [generator.nodes for generator in schedule.symmetry]
    members = set(collective.members)
    for generator in schedule.symmetry:
        at_home = {generator.nodes[member] for member in members} == members
        if not at_home or chunk_permutation(collective, generator.nodes) != generator.chunks:
            return None
    group = FreeGroup.of(len(schedule.topology.nodes), collective.members, nodes)
    if group is None:
        return None
    owners = np.asarray(collective.members)[np.unique(values.rank[moved.value])]
    home = group.home[owners]
    return group.order if len(np.unique(home)) == len(owners) else None
