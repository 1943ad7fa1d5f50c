"""How fast a long message streams along trees, by which sets of trees that load links alike are compared."""

from __future__ import annotations

from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.long_messages import estimate

LONG = 1 << 30
"""Bytes of the message."""
JUDGED = 1 << 15
"""Messages of its simulation, about."""


def streaming_seconds(schedule: Schedule, size: int = LONG) -> float:
    """Simulated, of `size` bytes."""
    return estimate(schedule, size, JUDGED).seconds
