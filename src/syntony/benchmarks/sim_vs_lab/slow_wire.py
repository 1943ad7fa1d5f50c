"""A wire that becomes slow while a job runs: `Communicator.tune_if_slow` names it, and the group tunes itself again.

    python -m syntony.benchmarks lab slow_wire [--fault 'slow rank2-switch to 60mbit at 80s'] [--seconds 150]

Four hosts around a switch repeat an all_reduce and ask every two seconds. A verdict needs a minute of traffic from
before, and 20 s from after. A row is a part of the run: at full rate, from the fault to the verdict, and behind each
tuning: milliseconds of an all_reduce (median), and the algorithm that ran. Every result is checked. Root only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from syntony.base.arguments import size
from syntony.base.quantity import bit_rate
from syntony.benchmarks.tables import Part, Row, Table
from syntony.topologies.parse import parse

HOSTS = 4
COLUMNS = (("from s", 6), ("to s", 6), ("calls", 6), ("ms", 7), ("algorithm", -12), ("", -11))


def measured(fault: str, seconds: float, rate: str, size: int) -> tuple[dict[str, Any], float, frozenset[int]]:
    """What rank 0 has written; when the fault begins; the ranks at its wires. Raises LabError."""
    from syntony.lab.faults import parse_fault
    from syntony.lab.lab import Lab
    from syntony.lab.lab_spec import LabError, at_rate, spec_of

    spec = at_rate(spec_of(parse(f"star:{HOSTS}")), bit_rate(rate))
    slow = parse_fault(fault, spec)
    machines = {end.machine for wire in slow.wires for end in wire.ends}
    ranks = frozenset(rank for rank in range(HOSTS) if spec.machines.index(spec.host_of[rank]) in machines)
    with tempfile.TemporaryDirectory() as folder, Lab(spec) as lab:
        out = Path(folder, "found.json")
        words = [str(out), str(time.monotonic()), str(seconds), str(size)]
        environment = {**os.environ, "XDG_CACHE_HOME": folder}  # what is tuned here is for nobody else
        rank = [sys.executable, "-m", "syntony.benchmarks.sim_vs_lab.slow_wire_rank", *words]
        if lab.run(rank, [slow], environment=environment):
            raise LabError("a rank of the benchmark failed; its output is above")
        return json.loads(out.read_text(encoding="utf-8")), slow.at, ranks


def rows(found: Mapping[str, Any], at: float, ranks: frozenset[int]) -> Iterator[Row]:
    """The parts of a run whose fault begins at `at` and slows the wires of `ranks`."""
    tunings = found["tunings"]
    begins = [(at, "slow"), *((tuning["end"], "tuned again") for tuning in tunings)]
    ends = [*(tuning["begin"] for tuning in tunings), float("inf")]
    changes = [(0.0, at, "full rate"), *((begin, end, what) for (begin, what), end in zip(begins, ends, strict=True))]
    usual = None
    for number, (begin, end, what) in enumerate(changes):
        calls = [call for call in found["calls"] if begin <= call[0] and call[1] <= end]
        if not calls:
            yield Row((f"{begin:.0f}", "", 0, "", "", what), "no call fell into this part; run longer")
            continue
        took = median(after - before for before, after, _ in calls) * 1e3
        cells = f"{begin:.0f}", f"{calls[-1][1]:.0f}", len(calls), f"{took:.1f}", calls[-1][2], what
        missed, said = "", ""
        if what == "slow" and not tunings:
            missed = "no wire was named"
        elif what == "tuned again":
            wires = tunings[number - 2]["wires"]
            said = "; ".join(wire["text"].split(";")[0] for wire in wires)
            if not any(ranks.intersection(wire["ends"]) for wire in wires) or tunings[number - 2]["begin"] < at:
                missed = "a wire was named that is not slow"
            elif number == len(changes) - 1 and usual is not None and took > usual:
                missed = "slower than before tuning"
        usual = took if what == "slow" else usual
        yield Row(cells, missed, remark=said)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fault", default="slow rank2-switch to 60mbit at 80s", metavar="F", help="as `lab` takes it")
    parser.add_argument("--seconds", type=float, default=150.0, metavar="S", help="of the run (default 150)")
    parser.add_argument("--rate", default="200mbit", metavar="R", help="of every cable (default 200mbit)")
    parser.add_argument("--size", default="1M", metavar="S", help="bytes of a buffer (default 1M)")


def _parts(options: argparse.Namespace) -> Iterator[Part]:
    def all_rows() -> Iterator[Row]:
        yield from rows(*measured(options.fault, options.seconds, options.rate, size(options.size)))

    title = f"{HOSTS} hosts at {options.rate}, all_reduce of {options.size}; {options.fault}"
    yield Part(title, COLUMNS, all_rows)


TABLE = Table(
    "slow_wire", "a wire that becomes slow is named, and the group tunes itself (as root)", _parts, _configure
)
