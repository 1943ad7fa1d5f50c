"""`syntony overlap ..`: plan a training step, predict it, explain exposed communication, and search a better plan."""

from __future__ import annotations

from syntony.overlap.commands import (
    compare,
    degrees,
    explain,
    layout,
    listing,
    plan,
    reshard,
    search,
    simulate,
    swarm,
    trace,
    traffic,
)  # fmt: skip

COMMANDS = tuple(
    verb.COMMAND
    for verb in (listing, plan, simulate, compare, explain, search, layout, degrees, reshard, swarm, trace, traffic)
)
