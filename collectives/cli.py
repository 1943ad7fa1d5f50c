"""The verb `topo probe`: it needs ranks at work, so it lives here and not with the other `topo` verbs."""

from __future__ import annotations

from topologies.command import Command

COMMANDS: tuple[Command, ...] = ()
