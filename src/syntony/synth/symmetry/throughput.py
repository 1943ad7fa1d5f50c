"""The speed of a Schedule for large sizes, and its distance from the bound (bounds/throughput.py)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.aggregation_limits import aggregation_seconds_per_byte
from syntony.synth.symmetry.link_loads import link_loads, link_loads_by_step


def seconds_per_byte(schedule: Schedule) -> Fraction:
    """Seconds per byte of size, for sizes so large that alphas vanish.

    If rounds are counted, steps are barriers, each as long as its busiest link takes. Otherwise the slices of a large
    message follow one another through the schedule, which is then as slow as its busiest link, or as the busiest of the
    switches that add (symmetry/aggregation_limits.py).
    """
    loads = link_loads_by_step(schedule) if len(schedule.rounds) else link_loads(schedule)[None, :]
    bandwidths = [link.bandwidth for link in schedule.topology.links]
    total = Fraction(0)
    for load in loads:
        total += max((int(load[link]) / bandwidths[link] for link in np.flatnonzero(load)), default=Fraction(0))
    total *= schedule.collective.unit
    return max(total, aggregation_seconds_per_byte(schedule)) if schedule.in_network else total


def gap_of(schedule: Schedule) -> Fraction | None:
    """The relative distance of `seconds_per_byte` from the throughput bound: 0 is optimal, 1/4 is a quarter more.

    None if there is no bound, or nothing to move.
    """
    if schedule.bounds is None or not schedule.bounds.throughput.seconds_per_byte:
        return None
    return seconds_per_byte(schedule) / schedule.bounds.throughput.seconds_per_byte - 1
