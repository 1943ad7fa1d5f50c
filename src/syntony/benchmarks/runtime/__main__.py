"""`python -m syntony.benchmarks.runtime TABLE [options]`: exit code 1: a goal was missed; 2: not measured.

A new table is one file beside this one that says `TABLE = Table(..)`, and one entry in `TABLES`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from syntony.benchmarks.runtime import gloo, hosts, imports, kill, latency, limit, mismatch, mpi, priority, soak
from syntony.benchmarks.tables import run

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
    return run("syntony.benchmarks.runtime", "What the runtime reaches.", TABLES, arguments)


if __name__ == "__main__":
    sys.exit(main())
