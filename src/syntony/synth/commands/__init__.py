"""The commands about schedules, one per file; syntony/commands.py lists those that are imported separately."""

from __future__ import annotations

from syntony.synth.commands import bound, congestion, files, place, portfolio, repair, simulate, synth, traffic

COMMANDS = (
    bound.COMMAND,
    synth.COMMAND,
    repair.COMMAND,
    *portfolio.COMMANDS,
    *place.COMMANDS,
    *simulate.COMMANDS,
    *traffic.COMMANDS,
    congestion.COMMAND,
    *files.COMMANDS,
)
