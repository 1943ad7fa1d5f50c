"""The limits that aggregators add to those of a Schedule's links: input rate, and capacity of slots.

    rate    all contributions enter the adder          seconds = bytes that enter / rate
    slots   a worker has at most as much in flight as  seconds = bytes that a worker sends * round trip / bytes of slots
            they hold; a result comes a round trip later

The round trip is a packet's: up to the switch and down to the farthest receiver, with the alphas and the slot's bytes
on the slowest link in each direction. Sums that go on to another switch take longer, so this never overstates the
limit.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction

from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.groups import expand


@dataclass(frozen=True)
class Limit:
    """`transfers` (rows of the whole schedule) together get no more than `rate`, bytes/s."""

    rate: Fraction
    transfers: tuple[int, ...]


def limits_of(whole: Schedule) -> list[Limit]:
    """The limits of the adding switches in a schedule without symmetry: adders, then pools of slots."""
    if not whole.in_network:
        return []
    into: dict[int, list[int]] = defaultdict(list)
    back: dict[int, Fraction] = defaultdict(Fraction)
    rows = whole.transfers.rows()
    for number, row in enumerate(rows):
        if row.dst >= whole.collective.ranks and row.value != row.result:
            into[row.dst].append(number)
        if row.src >= whole.collective.ranks:
            back[row.src] = max(back[row.src], _packet_seconds(whole, row.src, row.route))
    adders, pools = [], []
    for agent, numbers in into.items():
        aggregator = whole.topology.nodes[whole.node_of(agent)].aggregator
        if aggregator is None:
            continue
        if aggregator.rate is not None:
            adders.append(Limit(aggregator.rate, tuple(numbers)))
        if aggregator.pool_bytes() is None:
            continue
        sent: dict[tuple[int, tuple[int, ...]], list[int]] = defaultdict(list)
        for number in numbers:
            sent[rows[number].src, rows[number].route].append(number)
        for (_, route), mine in sent.items():
            pool_rate = aggregator.pool_rate(_packet_seconds(whole, agent, route) + back[agent])
            if pool_rate is not None:
                pools.append(Limit(pool_rate, tuple(mine)))
    return adders + pools


def aggregation_seconds_per_byte(schedule: Schedule) -> Fraction:
    """Least seconds per byte of the collective's size due to the switches' limits; 0 if they have none."""
    if not schedule.in_network:
        return Fraction(0)
    whole = expand(schedule)
    weight = whole.collective.chunks.weight[whole.values.chunk[whole.transfers.value]].tolist()
    loads = (sum(weight[row] for row in limit.transfers) / limit.rate for limit in limits_of(whole))
    return max(loads, default=Fraction(0)) * whole.collective.unit


def _packet_seconds(schedule: Schedule, switch: int, route: tuple[int, ...]) -> Fraction:
    """Seconds that a packet of the switch's slot size takes over the route."""
    aggregator = schedule.topology.nodes[schedule.node_of(switch)].aggregator
    links = [schedule.topology.links[link] for link in route]
    if aggregator is None or not links:
        return Fraction(0)
    slowest = min(link.bandwidth for link in links)
    return sum((Fraction(link.alpha) for link in links), Fraction(0)) + aggregator.slot_bytes / slowest
