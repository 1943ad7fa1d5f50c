"""The default slice size in which a Schedule is simulated: that of the CPU executor.

A simulation that cuts a tree's messages shows the gain of pipelining, as on real wires, and can be compared with that
of a Program, which is always cut. If so many messages would take long to simulate, slices are larger; reports of the
time state the slice size.
"""

from __future__ import annotations

from math import ceil

from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.program_simulator import executor_slice

MOST_MESSAGES = 1 << 19
"""Slices are enlarged if a simulation would have more messages than this."""


def usual_slice(schedule: Schedule, size: int) -> int:
    """Bytes of a slice, for `size` bytes in total, in at most MOST_MESSAGES messages."""
    collective = schedule.collective
    slices = max(1, MOST_MESSAGES // max(1, len(schedule.transfers)))
    largest = int(collective.chunks.weight.max(initial=0)) * collective.unit * size
    return max(executor_slice(collective.ranks), ceil(largest / slices))
