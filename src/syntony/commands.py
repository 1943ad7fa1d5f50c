"""The command table: which modules define which commands. Parser, help and documentation are generated from it.

A module is imported when its command is used; only printing the whole list imports all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType

from syntony.base.command import Command, UserError
from syntony.base.wording import did_you_mean

GROUPS: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "networks": {
            "topo": ("syntony.topologies.cli", "syntony.collectives.cli"),
        },
        "schedules": {
            "bound": ("syntony.synth.commands",),
            "synth": ("syntony.synth.commands",),
            "portfolio": ("syntony.synth.commands",),
            "compile": ("syntony.synth.commands.compile",),
            "repair": ("syntony.synth.commands",),
            "verify": ("syntony.synth.commands",),
            "simulate": ("syntony.synth.commands",),
            "compare": ("syntony.synth.commands.compare",),
            "traffic": ("syntony.synth.commands",),
            "congestion": ("syntony.synth.commands",),
            "place": ("syntony.synth.commands",),
            "convert": ("syntony.synth.commands",),
            "advise": ("syntony.synth.commands.advise",),
            "export": ("syntony.synth.commands.export", "syntony.collectives.p2p.command"),
        },
        "running": {
            "bench": ("syntony.benchmarks.cli",),
            "tune": ("syntony.collectives.tuner.cli",),
            "lab": ("syntony.lab.cli",),
            "run": ("syntony.collectives.torch_backend.command",),
        },
        "training": {
            "train": ("syntony.trainer.cli",),
            "overlap": ("syntony.overlap.commands", "syntony.trainer.cli"),
        },
        "viewing": {
            "view": ("syntony.view.cli",),
        },
        "troubleshooting": {
            "preflight": ("syntony.collectives.preflight.command",),
            "trace": ("syntony.collectives.recorder.command",),
        },
        "getting started": {
            "demo": ("syntony.benchmarks.cli",),
            "examples": ("syntony.examples",),
            "completion": ("syntony.completion",),
            "man": ("syntony.manual",),
        },
    }
)
"""The commands by purpose, in the order of `syntony --help`."""

ROOMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {verb: rooms for group in GROUPS.values() for verb, rooms in group.items()}
)


def commands_of(verb: str) -> Iterator[Command]:
    """The commands that begin with `verb`, in the order in which their modules list them.

    A module is imported only if the modules before it do not define the command.
    """
    for room in ROOMS[verb]:
        yield from (command for command in import_module(room).COMMANDS if command.name[0] == verb)


def all_commands() -> tuple[Command, ...]:
    """Every command, in the order of `ROOMS`."""
    return tuple(command for verb in ROOMS for command in commands_of(verb))


def find(words: list[str]) -> tuple[Command, list[str]]:
    """Splits `words` into the command that they begin with and its arguments.

    Raises UserError that suggests the nearest name if there is no such command.
    """
    verb, *rest = words
    if verb not in ROOMS:
        raise UserError(f"no command {verb!r}{did_you_mean(verb, ROOMS)}; `syntony --help` lists them")
    for command in commands_of(verb):
        if tuple(words[: len(command.name)]) == command.name:
            return command, words[len(command.name) :]
    choices = [command.name[1] for command in commands_of(verb) if len(command.name) > 1]
    if not rest or rest[0].startswith("-"):
        raise UserError(f"`syntony {verb}` needs one more word: {', '.join(choices)}")
    raise UserError(
        f"no command `syntony {verb} {rest[0]}`{did_you_mean(rest[0], choices)}; there are {', '.join(choices)}"
    )
