"""What a room contributes to the `syntony` command: a tuple `COMMANDS` of `Command` in its `cli.py`.

The front door joins the tuples of all rooms into one table; parser, help, completion, man page and documentation are
made from it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass


class UserError(ValueError):
    """The user's mistake, told in one sentence: what is wrong, where, and what would be right.

    The front door prints the sentence on stderr and exits with code 2; a traceback is never shown for it.
    """


class FailedError(RuntimeError):
    """What went wrong though the user made no mistake (a rank died), told in one sentence; exit code 1."""


def tracebacks_wanted() -> bool:
    """SYNTONY_DEBUG=1, or any of the runtime's levels (csrc/core/process/log.hpp): who debugs wants to see where."""
    return os.environ.get("SYNTONY_DEBUG", "") not in ("", "0")


@dataclass(frozen=True)
class Command:
    """One verb of the command line.

    `name` are the words that select it: `("topo", "list")` is `syntony topo list`.
    `summary` is one line without a full stop; `example` is a command that works as it stands.
    `configure` adds the verb's own arguments to its parser; `run` does the work and returns the exit code.
    `passes_on`: the words after `--` are a command of their own; `run` finds them, unread, in `passed_on`.
    `limited`: it has options `--timeout` and perhaps `--memory`, within which its process is held (supervised.py), and
    which Ctrl-C ends at once; `run` finds in `standby` where to note its best answer so far.
    """

    name: tuple[str, ...]
    summary: str
    example: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    passes_on: bool = False
    limited: bool = False
