"""What aggregators add to the limits of a Schedule's links: how fast they take in, and how much they hold.

    rate    all contributions enter the adder          seconds = bytes that enter / rate
    slots   a worker has no more in flight than they   seconds = bytes that a worker sends * round trip / bytes of slots
            hold; a result comes a round trip later

The round trip is a packet's: up to the switch and down to the farthest receiver, alphas and the slot's bytes on the
slowest link of either way. Sums that go on to another switch take longer, so this never overstates the limit.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

from synth.schedule import Schedule, Transfer


def aggregation_seconds_per_byte(schedule: Schedule) -> Fraction:
    """Seconds per byte of the collective's size that the switches' limits cost at least; 0 where they have none."""
    if not schedule.in_network:
        return Fraction(0)
    whole = schedule.expand()
    weight = whole.collective.chunks.weight[whole.values.chunk].tolist()
    into: dict[int, list[Transfer]] = defaultdict(list)
    back: dict[int, Fraction] = defaultdict(Fraction)
    for row in whole.transfers.rows():
        if row.dst >= whole.collective.ranks and row.value != row.result:
            into[row.dst].append(row)
        if row.src >= whole.collective.ranks:
            back[row.src] = max(back[row.src], _packet_seconds(whole, row.src, row.route))
    worst = Fraction(0)
    for agent, rows in into.items():
        aggregator = whole.topology.nodes[whole.node_of(agent)].aggregator
        if aggregator is None:
            continue
        if aggregator.rate is not None:
            worst = max(worst, sum(weight[row.value] for row in rows) / aggregator.rate)
        if aggregator.pool_bytes() is None:
            continue
        sent: dict[tuple[int, tuple[int, ...]], int] = defaultdict(int)
        for row in rows:
            sent[row.src, row.route] += weight[row.value]
        for (_, route), load in sent.items():
            pool_rate = aggregator.pool_rate(_packet_seconds(whole, agent, route) + back[agent])
            if pool_rate is not None:
                worst = max(worst, load / pool_rate)
    return worst * whole.collective.unit


def _packet_seconds(schedule: Schedule, switch: int, route: tuple[int, ...]) -> Fraction:
    """Seconds that a packet of the switch's slot size takes over the route."""
    aggregator = schedule.topology.nodes[schedule.node_of(switch)].aggregator
    links = [schedule.topology.links[link] for link in route]
    if aggregator is None or not links:
        return Fraction(0)
    slowest = min(link.bandwidth for link in links)
    return sum((Fraction(link.alpha) for link in links), Fraction(0)) + aggregator.slot_bytes / slowest
