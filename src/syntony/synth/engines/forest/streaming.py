"""How fast a long message streams along trees, by which sets of trees that load links alike are compared."""

from __future__ import annotations

from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.long_messages import estimate

LONG = 1 << 30
"""Bytes of the message."""
ROUGH, FINE = 1 << 13, 1 << 17
"""Messages of a simulation, about: to look for what is faster, and to be believed."""


def streaming_seconds(schedule: Schedule, size: int = LONG, messages: int = FINE) -> float:
    """Simulated, of `size` bytes."""
    return estimate(schedule, size, messages).seconds
