"""Adding in the network against a ring, in the lab (root is needed):

    python -m syntony.benchmarks.in_network [--ranks 4] [--rate 200mbit] [--sizes 1M,4M,16M]

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
from pathlib import Path
from typing import Any

from syntony.base.arguments import size
from syntony.base.command import UserError
from syntony.base.quantity import bit_rate
from syntony.benchmarks.in_network.rank import FORMATS
from syntony.topologies.parse import parse


def main() -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m syntony.benchmarks.in_network", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--ranks", type=int, default=4, metavar="N", help="hosts around the switch (default 4)")
    parser.add_argument("--rate", default="200mbit", metavar="R", help="of every cable (default 200mbit)")
    parser.add_argument("--sizes", default="1M,4M,16M", metavar="S,..", help="bytes per buffer (default 1M,4M,16M)")
    options = parser.parse_args()
    try:
        found = measured(options.ranks, options.rate, [size(text) for text in options.sizes.split(",")])
    except UserError as error:
        print(f"in_network: {error}", file=sys.stderr)
        return 2
    print(table(found))
    return 0


def measured(ranks: int, rate: str, sizes: list[int]) -> dict[str, Any]:
    """Runs the ranks in a lab; their rows, with the `ranks`, `rate` and `ceiling` in bytes/s. Raises LabError."""
    from syntony.lab.lab import Lab, stopping_by_signals
    from syntony.lab.lab_spec import LabError, at_rate, spec_of

    switch = f"aggregator=sharp,aggregator.formats={'+'.join(FORMATS)},aggregator.tenants=2"
    spec = at_rate(spec_of(parse(f"star:{ranks},{switch}")), bit_rate(rate))
    lab = Lab(spec)
    with tempfile.TemporaryDirectory() as folder, stopping_by_signals(), lab:
        ceiling = min(each.best for each in lab.ceilings())
        out = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "syntony.benchmarks.in_network.rank", str(out), *map(str, sizes)]
        if lab.run(command) != 0:
            raise LabError("a rank of the benchmark failed; what it said is above")
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found | {"ranks": ranks, "rate": rate, "ceiling": ceiling}


def table(found: dict[str, Any]) -> str:
    """The rows as text."""
    ranks, ceiling = found["ranks"], found["ceiling"]
    lines = [
        f"all_reduce of {ranks} hosts around one switch at {found['rate']}; "
        f"raw ceiling of a cable: {ceiling * 8e-6:.1f} Mbit/s of TCP payload",
        "",
        f"{'bytes':>10}  {'way':<28}{'ms':>9}{'MB/s':>8}{'x ring':>8}{'of ceiling':>12}"
        f"{'max error':>11}{'relative':>10}",
    ]
    ring = {row["size"]: row["seconds"] for row in found["rows"] if row["way"] == "ring"}
    for row in found["rows"]:
        seconds = row["seconds"]
        per_cable = row["size"] * (2 * (ranks - 1) / ranks if row["way"] == "ring" else 1)
        if row["way"] == "bfloat16":
            per_cable /= 2
        way = row["way"] if row["way"] == "ring" else f"switch, {row['way']}"
        lines.append(
            f"{row['size']:>10}  {way:<28}{seconds * 1e3:>9.1f}{row['size'] / seconds / 1e6:>8.1f}"
            f"{ring[row['size']] / seconds:>8.2f}{per_cable / seconds / ceiling:>11.0%} "
            f"{row['error']:>11.1e}{row['relative']:>10.1e}{'' if row['equal'] else '  RANKS DIFFER'}"
        )
    both = found["tenants"]
    seconds = both["seconds"]
    lines.append(
        f"{both['size']:>10}  {both['way']:<28}{seconds * 1e3:>9.1f}{2 * both['size'] / seconds / 1e6:>8.1f}"
        f"{2 * ring[both['size']] / seconds:>8.2f}{2 * both['size'] / seconds / ceiling:>11.0%}   (both together)"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
