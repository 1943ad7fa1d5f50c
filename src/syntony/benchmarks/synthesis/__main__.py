"""`python -m syntony.benchmarks.synthesis TABLE`: exit code 1 when a goal was missed.

A new table is one file beside this one that says `TABLE = Table(..)`, and one entry in `TABLES`.
"""

from __future__ import annotations

import argparse
import sys

from syntony.benchmarks.synthesis import (
    allreduce,
    alltoall,
    bfb,
    blink,
    fast,
    forest,
    hierarchy,
    placement,
    repair,
    scale,
    sccl,
    teccl,
)
from syntony.benchmarks.synthesis.table import show

TABLES = (
    sccl.TABLE,
    forest.TABLE,
    allreduce.TABLE,
    alltoall.TABLE,
    bfb.TABLE,
    blink.TABLE,
    fast.TABLE,
    hierarchy.TABLE,
    placement.TABLE,
    teccl.TABLE,
    repair.TABLE,
    scale.TABLE,
)


def main() -> int:
    """Prints the table that was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m syntony.benchmarks.synthesis", description="What the synthesizer reaches."
    )
    tables = {table.name: table for table in TABLES}
    summaries = "; ".join(f"{table.name}: {table.summary}" for table in TABLES)
    parser.add_argument("table", choices=tables, help=summaries)
    parser.add_argument("--run", action="store_true", help="also run every schedule of up to 16 ranks on processes")
    options = parser.parse_args()
    return 0 if show(tables[options.table], options.run) else 1


if __name__ == "__main__":
    sys.exit(main())
