"""Adding in the network against a ring, in the lab (root is needed):

    python -m syntony.benchmarks lab in_network [--ranks 4] [--rate 200mbit] [--sizes 1M,4M,16M]

A star of ranks around a switch that adds, each a network namespace of this machine, its cables held to the rate. The
ring's limit is 2 (n-1) / n times the size per cable, the switch's is the size: for 4 ranks at most 1.5 times as fast.
`of ceiling` compares with what TCP got out of the slowest cable before, both ways at once. Times are the slowest
rank's, medians of five; all results are checked.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syntony.base.arguments import size
from syntony.base.quantity import bit_rate
from syntony.benchmarks.in_network.rank import FORMATS
from syntony.benchmarks.tables import Part, Row, Table
from syntony.topologies.parse import parse


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, default=4, metavar="N", help="hosts around the switch (default 4)")
    parser.add_argument("--rate", default="200mbit", metavar="R", help="of every cable (default 200mbit)")
    parser.add_argument("--sizes", default="1M,4M,16M", metavar="S,..", help="bytes per buffer (default 1M,4M,16M)")


def measured(ranks: int, rate: str, sizes: list[int]) -> dict[str, Any]:
    """Runs the ranks in a lab; their rows, with the `ranks`, `rate` and `ceiling` in bytes/s. Raises LabError."""
    from syntony.lab.lab import Lab
    from syntony.lab.lab_spec import LabError, at_rate, spec_of

    switch = f"aggregator=sharp,aggregator.formats={'+'.join(FORMATS)},aggregator.tenants=2"
    spec = at_rate(spec_of(parse(f"star:{ranks},{switch}")), bit_rate(rate))
    lab = Lab(spec)
    with tempfile.TemporaryDirectory() as folder, lab:
        ceiling = min(each.best for each in lab.ceilings())
        out = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "syntony.benchmarks.in_network.rank", str(out), *map(str, sizes)]
        if lab.run(command) != 0:
            raise LabError("a rank of the benchmark failed; its output is above")
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found | {"ranks": ranks, "rate": rate, "ceiling": ceiling}


def part(found: dict[str, Any]) -> Part:
    """What `measured` found."""
    title = (
        f"all_reduce of {found['ranks']} hosts around one switch at {found['rate']}; "
        f"raw ceiling of a cable: {found['ceiling'] * 8e-6:.1f} Mbit/s of TCP payload"
    )
    return Part(title, COLUMNS, lambda: _rows(found))


def _rows(found: dict[str, Any]) -> Iterator[Row]:
    ranks, ceiling = found["ranks"], found["ceiling"]
    ring = {row["size"]: row["seconds"] for row in found["rows"] if row["way"] == "ring"}

    def cells(row: dict[str, Any], way: str, sums: int, per_cable: float) -> tuple[object, ...]:
        size, seconds = row["size"], row["seconds"]
        rates = f"{sums * size / seconds / 1e6:.1f}", f"{sums * ring[size] / seconds:.2f}"
        return size, way, f"{seconds * 1e3:.1f}", *rates, f"{per_cable / seconds / ceiling:.0%}"

    for row in found["rows"]:
        by_ring = row["way"] == "ring"
        per_cable = row["size"] * (2 * (ranks - 1) / ranks if by_ring else 1) / (2 if row["way"] == "bfloat16" else 1)
        errors = f"{row['error']:.1e}", f"{row['relative']:.1e}"
        way = row["way"] if by_ring else f"switch, {row['way']}"
        yield Row((*cells(row, way, 1, per_cable), *errors), "" if row["equal"] else "ranks differ")
    both = found["tenants"]
    yield Row((*cells(both, both["way"], 2, 2 * both["size"]), "", ""), remark="(both together)")


COLUMNS = (
    ("bytes", 10), ("way", -28), ("ms", 9), ("MB/s", 8), ("x ring", 8), ("of ceiling", 10), ("max error", 9),
    ("relative", 8),
)  # fmt: skip
TABLE = Table(
    "in_network",
    "adding in the network against a ring",
    lambda options: (part(measured(options.ranks, options.rate, [size(text) for text in options.sizes.split(",")])),),
    _configure,
)
