"""The exact load of every link in a Schedule; without expanding a symmetric one if possible.

    listed      0 ──▶ 1 of chunk 0          group of order 4, which turns the ring
    expanded    0 ──▶ 1, 1 ──▶ 2, ..        4 transfers on the 4 links of one orbit: 4 * weight / 4 on each

If the group is free on chunks (symmetry/free_group.py), and at most one chunk of every orbit is listed, no two listed
transfers are in one orbit and none is its own image: each represents as many transfers as the group has elements, and
the links of an orbit carry the same. Everything else is expanded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntony.base.rows import ascending
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.free_group import free_order as free_order_of
from syntony.synth.symmetry.groups import action_of, expand
from syntony.synth.symmetry.link_orbits import link_orbits, orbits_under

Integers = NDArray[np.signedinteger]


def link_loads(schedule: Schedule) -> Integers:
    """(links,): units of chunk weight that each link carries."""
    loads: Integers = _loads(schedule, by_step=False)[0]
    return loads


def link_loads_by_step(schedule: Schedule) -> Integers:
    """(steps, links): units of chunk weight that each link carries in each step."""
    return _loads(schedule, by_step=True)


def _loads(schedule: Schedule, by_step: bool) -> Integers:
    """One row per step, or one row for all."""
    order = free_order(schedule) if schedule.symmetry else 1
    if order is None:
        return _loads(expand(schedule), by_step)
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
    """(rows, links): the load of the listed transfers, transfer t in row[t]."""
    moved = schedule.transfers
    hops = np.diff(moved.offset)
    weight = schedule.collective.chunks.weight[schedule.values.chunk[moved.value]].astype(np.int64)
    links = len(schedule.topology.links)
    loads = np.zeros(rows * links, np.int64)
    np.add.at(loads, np.repeat(row.astype(np.int64) * links, hops) + moved.link, np.repeat(weight, hops))
    return loads.reshape(rows, links)


def free_order(schedule: Schedule) -> int | None:
    """The order of the schedule's group if each listed transfer represents that many; None otherwise.

    Every transfer concerns one chunk. If the group is free on the orbits of the listed chunks, and these are in
    different orbits, only the listed transfers move such a chunk, and no image of a listed transfer is listed.
    """
    collective = schedule.collective
    if schedule.in_network:
        return None
    nodes = len(schedule.topology.nodes)
    weight = collective.chunks.weight
    both = []
    for generator in schedule.symmetry:
        chunks = action_of(schedule, generator).chunks
        if not np.array_equal(weight[chunks], weight):
            return None
        both.append(np.r_[np.asarray(generator.nodes, np.int64), nodes + chunks])
    listed = ascending(schedule.values.chunk[schedule.transfers.value])
    if not len(listed):
        return None
    orbit = orbits_under(nodes + len(weight), both)[nodes:]
    if len(ascending(orbit[listed])) < len(listed):
        return None
    moved = np.flatnonzero(np.isin(orbit, orbit[listed]))
    return free_order_of(nodes + moved, np.stack(both))
