"""`python -m benchmarks.runtime TABLE [options]`: exit code 1 when a goal was missed, 2 when it could not be measured.

A new table is one file beside this one that says `TABLE = Table(..)`, and one entry in `TABLES`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.goals import show
from benchmarks.runtime import gloo, hosts, imports, kill, latency, limit, mismatch, mpi, priority, soak
from collectives.launch import RankError
from topologies.command import UserError

TABLES = (
    gloo.TABLE,
    mpi.TABLE,
    latency.TABLE,
    limit.TABLE,
    imports.TABLE,
    hosts.TABLE,
    kill.TABLE,
    mismatch.TABLE,
    priority.TABLE,
    soak.TABLE,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table that was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runtime", description="What the runtime reaches.")
    choices = parser.add_subparsers(dest="table", required=True, metavar="TABLE")
    for table in TABLES:
        table.configure(choices.add_parser(table.name, help=table.summary, description=table.summary))
    options = parser.parse_args(arguments)
    try:
        return 0 if show({table.name: table for table in TABLES}[options.table].parts(options)) else 1
    except UserError as error:
        print(f"benchmarks.runtime {options.table}: {error}", file=sys.stderr)
        return 2
    except RankError as error:
        print(f"benchmarks.runtime {options.table}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
