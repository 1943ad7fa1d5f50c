"""The checker of Schedules: reads the columns, shares no code with engines.

It proves, in this order (the verdict is the first fault; it names rank or switch, step and chunk):

    values     operands are earlier values of the same chunk; no contribution is summed twice; contributions start
               where the collective says
    switches   a switch that is an agent can do what it must: it reduces if it adds, in a number format that it has,
               and every operand arrives; it multicasts if it copies
    routes     the links exist and lead from source to destination, only through other switches and NICs
    causality  by steps: a source gets the value through transfers of smaller steps. So data-driven execution does not
               deadlock: everything that a transfer waits for has a smaller step
    necessity  nobody receives what it holds; every transfer serves some demanded chunk. Hence no transfer can be left
               out: its receiver would lack a value that is needed there
    outcome    every demanded rank ends with all contributions, added in the same order on all ranks
    slots      no switch holds more sums at once than it has slots, if steps are executed one by one
    capacity   if rounds are claimed: in each step, no link carries more than it can in that many rounds
    claims     the bounds, recomputed from their witnesses (checker/claims.py)

Values are checked in checker/columns.py, routes in routes.py, causality and repeated data in holdings.py, outcome and
necessity in outcome.py. A symmetric schedule is proven on representative chunks if that suffices (checker/orbits.py);
otherwise it is expanded first.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from fractions import Fraction
from math import gcd, lcm

import numpy as np

from syntony.synth.checker.schedules.claims import check_bounds
from syntony.synth.checker.schedules.columns import Columns
from syntony.synth.checker.schedules.holdings import Holdings
from syntony.synth.checker.schedules.orbits import Orbits, orbits_of
from syntony.synth.checker.schedules.outcome import check_outcome
from syntony.synth.checker.schedules.routes import check_routes
from syntony.synth.checker.verdict import FaultError, Verdict
from syntony.synth.model.schedule import Schedule, Transfer
from syntony.synth.symmetry.groups import expand


def check_schedule(schedule: Schedule) -> Verdict:
    """Proves the Schedule; the Verdict names the first fault."""
    try:
        columns = Columns(schedule)
        orbits = None
        if schedule.symmetry:
            orbits = orbits_of(schedule)
            if orbits is None:
                _check_listed_once(columns)
                columns = Columns(expand(schedule))
        _check_switches(columns)
        check_routes(columns)
        check_outcome(columns, Holdings(columns), orbits.chunks if orbits else range(len(columns.block)))
        _check_slots(columns)
        _check_capacity(columns, orbits)
        check_bounds(schedule)
    except FaultError as fault:
        return fault.verdict
    return Verdict(valid=True)


def _check_listed_once(columns: Columns) -> None:
    """Expansion makes a set of the listed transfers, so duplicates would go unnoticed."""
    seen: set[Transfer] = set()
    for t, row in enumerate(columns.schedule.transfers.rows()):
        if row in seen:
            raise columns.at(t, "needless: the same transfer is listed twice", row.dst)
        seen.add(row)


def _check_switches(columns: Columns) -> None:
    """Switches only do what they can: add, in one of their number formats, and copy."""
    schedule, ranks = columns.schedule, columns.ranks
    departures: dict[tuple[int, int], int] = {}
    for t in np.flatnonzero((columns.src >= ranks) | (columns.dst >= ranks)).tolist():
        value, src, dst = int(columns.value[t]), int(columns.src[t]), int(columns.dst[t])
        if src >= ranks and not columns.able[src - ranks].multicast:
            first = departures.setdefault((src, value), t)
            if first != t:
                raise columns.at(t, f"transfer {first} takes this value from it already, and it does not multicast")
        if dst < ranks:
            continue
        switch = columns.able[dst - ranks]
        if not columns.reduction[t]:
            if not switch.multicast:
                raise columns.at(t, "it does not multicast, so it can do nothing with a copy", dst)
            continue
        if not switch.reduces:
            raise columns.at(t, "it does not reduce", dst)
        if src == dst:
            raise columns.at(t, "a switch adds what arrives; it has nothing of its own", dst)
        if switch.aggregator and schedule.number_format not in switch.aggregator.formats:
            adds = f"{switch.aggregator.name} adds {', '.join(switch.aggregator.formats)}"
            raise columns.at(t, f"{adds}, not {schedule.number_format or 'an unnamed number format'}", dst)


def _check_slots(columns: Columns) -> None:
    """A switch keeps a sum from the step of its first operand until the sum has left for the last time."""
    ranks, step = columns.ranks, columns.step
    leaves: dict[tuple[int, int], int] = defaultdict(int)
    for t in np.flatnonzero(columns.src >= ranks).tolist():
        sent = int(columns.src[t]), int(columns.value[t])
        leaves[sent] = max(int(step[t]), leaves[sent])
    comes: dict[tuple[int, int], int] = {}  # a sum at a switch -> the transfer of its first operand
    for t in np.flatnonzero(columns.reduction & (columns.dst >= ranks)).tolist():
        kept = int(columns.dst[t]), int(columns.result[t])
        comes[kept] = min(comes.get(kept, t), t, key=lambda t: (step[t], t))
    sums: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # switch -> (first step, end, transfer)
    for kept, t in comes.items():
        sums[kept[0]].append((int(step[t]), max(leaves[kept], int(step[t]) + 1), t))
    for agent, stays in sums.items():
        aggregator = columns.able[agent - ranks].aggregator
        if aggregator is None or aggregator.slots is None:
            continue
        open_until: list[int] = []
        for start, end, transfer in sorted(stays):
            while open_until and open_until[0] <= start:
                heapq.heappop(open_until)
            heapq.heappush(open_until, end)
            if len(open_until) > aggregator.slots:
                slots = f"{aggregator.name} has {aggregator.slots}"
                raise columns.at(transfer, f"it would hold {len(open_until)} sums at once; {slots} slots", agent)


def _check_capacity(columns: Columns, orbits: Orbits | None) -> None:
    """Rounds: in a step of r rounds a link of u units carries chunk weights up to r * u.

    With representatives, the loads of all links in an orbit are equal and are stored at its least link.
    """
    schedule = columns.schedule
    rounds = schedule.rounds.tolist()
    if not rounds:
        return
    if len(rounds) != columns.steps:
        message = f"it has {columns.steps} steps but rounds for {len(rounds)}"
        raise FaultError(Verdict(False, message, step=columns.steps - 1))
    if min(rounds) < 1:
        step = rounds.index(min(rounds))
        message = f"step {step} lasts {rounds[step]} rounds; it must last at least 1"
        raise FaultError(Verdict(False, message, step=step))
    topology = schedule.topology
    bandwidths = [link.bandwidth for link in topology.links]
    whole = lcm(*(bandwidth.denominator for bandwidth in bandwidths))
    unit = Fraction(gcd(*(int(bandwidth * whole) for bandwidth in bandwidths)), whole)

    link = schedule.transfers.link.astype(np.int64)
    owner = np.repeat(np.arange(len(columns.step)), np.diff(schedule.transfers.offset))
    weight = schedule.collective.chunks.weight.astype(np.int64)[columns.chunk[columns.value[owner]]]
    at = np.asarray(orbits.link, np.int64)[link] if orbits else link
    spots, spot = np.unique(columns.step[owner] * len(bandwidths) + at, return_inverse=True)
    listed = np.zeros(len(spots), np.int64)
    np.add.at(listed, spot, weight)
    for number, (place, load) in enumerate(zip(spots.tolist(), listed.tolist(), strict=True)):
        step, least = divmod(place, len(bandwidths))
        times = orbits.order // orbits.link_size[least] if orbits else 1
        room = rounds[step] * bandwidths[least] / unit
        if times * load <= room:
            continue
        hop = int(np.flatnonzero(spot == number)[-1])
        ends = topology.links[int(link[hop])]
        names = [topology.nodes[node].name for node in (ends.src, ends.dst)]
        raise columns.at(
            int(owner[hop]),
            f"link {ends.id} ({names[0]} -> {names[1]}) would carry weight {times * load}; "
            f"in {rounds[step]} rounds it carries {room}",
        )
