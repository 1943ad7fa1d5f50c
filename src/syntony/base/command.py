"""How a package contributes to the `syntony` command: a tuple `COMMANDS` of `Command` in its `cli.py`.

The top-level program joins all these tuples into one table, from which it makes the parser, help, completion, man page
and documentation.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass


class UserError(ValueError):
    """A user error, explained in one sentence: what is wrong, where, and what would be right.

    The command prints the sentence on stderr without a traceback and exits with code 2.
    """


class FailedError(RuntimeError):
    """A failure that is not the user's mistake (a rank died), explained in one sentence; exit code 1."""


def tracebacks_wanted() -> bool:
    """Whether SYNTONY_DEBUG is 1 or any of the runtime's levels (csrc/core/process/log.hpp)."""
    return os.environ.get("SYNTONY_DEBUG", "") not in ("", "0")


@dataclass(frozen=True)
class Command:
    """One command of the command line.

    `name` are the words that select it: `("topo", "list")` is `syntony topo list`.
    `summary` is one line without a full stop; `example` is a command that works as it stands.
    `configure` adds the command's own arguments to its parser; `run` does the work and returns the exit code.
    `passes_on`: the words after `--` are a separate command; `run` gets them, unparsed, in `passed_on`.
    `limited`: it has the option `--timeout` and perhaps `--memory`, which are enforced on its process (supervised.py);
    Ctrl-C ends it at once; `run` gets in `standby` the place to record its best answer so far.
    """

    name: tuple[str, ...]
    summary: str
    example: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    passes_on: bool = False
    limited: bool = False
