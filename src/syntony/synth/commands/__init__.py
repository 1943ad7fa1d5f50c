"""The commands about schedules, a file each; those that are imported on their own are in syntony/commands.py."""

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
