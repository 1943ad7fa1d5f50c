"""The slices in which a Schedule is simulated unless somebody says otherwise: those of the CPU executor.

A simulation that cuts a tree's messages finds what pipelining gains, as on real wires, and can be held against that of
a Program, which is always cut. Where so many messages would take long to simulate, slices are larger; who shows the
time says of which slices it is.
"""

from __future__ import annotations

from math import ceil

from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.program_simulator import executor_slice

MOST_MESSAGES = 1 << 19
"""If a simulation had more messages than this, slices are made larger."""


def usual_slice(schedule: Schedule, size: int) -> int:
    """Bytes of a slice, for `size` bytes in all."""
    collective = schedule.collective
    slices = max(1, MOST_MESSAGES // max(1, len(schedule.transfers)))
    largest = int(collective.chunks.weight.max(initial=0)) * collective.unit * size
    return max(executor_slice(collective.ranks), ceil(largest / slices))
