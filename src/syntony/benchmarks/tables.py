"""Tables of a room: options, and parts (benchmarks/goals.py) that are measured while they are printed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from syntony.base.command import UserError
from syntony.benchmarks.goals import Part, show
from syntony.collectives.bootstrap.launch import RankError


@dataclass(frozen=True)
class Table:
    """One table of a registry.

    parts      what is measured, from the options; raises UserError where it cannot be
    configure  adds the table's options
    """

    name: str
    summary: str
    parts: Callable[[argparse.Namespace], tuple[Part, ...]]
    configure: Callable[[argparse.ArgumentParser], None] = lambda parser: None


def run(room: str, description: str, tables: Sequence[Table], arguments: Sequence[str] | None = None) -> int:
    """`python -m ROOM TABLE [options]`: prints the table that was asked for. Exit code 1 when a goal was missed or a
    rank failed, 2 when it could not be measured."""
    parser = argparse.ArgumentParser(prog=f"python -m {room}", description=description)
    choices = parser.add_subparsers(dest="table", required=True, metavar="TABLE")
    for table in tables:
        table.configure(choices.add_parser(table.name, help=table.summary, description=table.summary))
    options = parser.parse_args(arguments)
    try:
        return 0 if show({table.name: table for table in tables}[options.table].parts(options)) else 1
    except (UserError, RankError) as error:
        print(f"{room} {options.table}: {error}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
