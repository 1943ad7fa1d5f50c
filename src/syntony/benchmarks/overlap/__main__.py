"""`python -m syntony.benchmarks.overlap TABLE [options]`: exit code 1: a goal was missed; 2: not measured.

A new table is one file beside this one that says `TABLE = Table(..)`, and one entry in `TABLES`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from syntony.benchmarks.overlap import (
    bitwise,
    counting,
    data_parallel,
    expert_parallel,
    explaining,
    grid,
    long,
    memory,
    pipeline,
    policies,
    predicting,
    searching,
    sharded,
    tensor_parallel,
)
from syntony.benchmarks.tables import run

TABLES = (
    data_parallel.TABLE,
    grid.TABLE,
    sharded.TABLE,
    tensor_parallel.TABLE,
    expert_parallel.TABLE,
    pipeline.TABLE,
    bitwise.TABLE,
    counting.TABLE,
    memory.TABLE,
    long.TABLE,
    policies.TABLE,
    searching.TABLE,
    predicting.TABLE,
    explaining.TABLE,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table that was asked for."""
    return run("syntony.benchmarks.overlap", "What overlap reaches.", TABLES, arguments)


if __name__ == "__main__":
    sys.exit(main())
