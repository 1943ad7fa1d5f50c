"""The slices in which a Schedule is simulated unless somebody says otherwise: those of the CPU executor.

A simulation that cuts a tree's messages finds what pipelining gains, as on real wires, and can be held against that of
a Program, which is always cut. Where so many flows would take long to simulate, slices are larger; who shows the time
says of which slices it is.
"""

from __future__ import annotations

from math import ceil

from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.program_simulator import executor_slice

_MOST_FLOWS = 200_000


def usual_slice(schedule: Schedule, size: int) -> int:
    """Bytes: the executor's slice for so many ranks, doubled until `size` bytes are not too many flows."""
    collective, found = schedule.collective, executor_slice(schedule.collective.ranks)
    largest = max((float(size * collective.share(chunk)) for chunk in range(len(collective.chunks))), default=0.0)
    while len(schedule.transfers) * ceil(largest / found) > _MOST_FLOWS and found < largest:
        found *= 2
    return found
