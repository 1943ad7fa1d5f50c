"""Two jobs that share a switch's slots, as in ATP, in the lab (root is needed):

    python -m syntony.benchmarks lab sharing [--ranks 4] [--rate 100mbit] [--size 8M] [--slots 8,32,256]

A star of ranks around one switch; both jobs run on all of them, and so share the cables, too. A slot is whose packet
comes first; what finds none is added by a server beside the switch (csrc/emulation/aggregator/slots.hpp). The sum of
both jobs' rates is compared with that of one alone, which has the cables and all slots to itself: goal 0.9. `passed on`
is the share of packets that found no slot. Times are the slowest rank's, medians of five; all results are checked.
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
from syntony.benchmarks.in_network.rank import REPETITIONS
from syntony.benchmarks.tables import Part, Row, Table
from syntony.lab.aggregator import LAB_SLOT_BYTES
from syntony.topologies.parse import parse

GOAL = 0.9
"""Of one job alone."""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, default=4, metavar="N", help="hosts around the switch (default 4)")
    parser.add_argument("--rate", default="100mbit", metavar="R", help="of every cable (default 100mbit)")
    parser.add_argument("--size", default="8M", metavar="S", help="bytes per buffer (default 8M)")
    parser.add_argument("--slots", default="8,32,256", metavar="N,..", help="of the switch (default 8,32,256)")


def measured(ranks: int, rate: str, size: int, slots: int) -> dict[str, Any]:
    """Seconds and packets passed on, of one job and of two. Raises LabError."""
    from syntony.lab.lab import Lab
    from syntony.lab.lab_spec import LabError, at_rate, spec_of

    own = {"formats": "float32", "tenants": 2, "slots": slots, "slot_bytes": LAB_SLOT_BYTES}
    switch = ",".join(["aggregator=atp", *(f"aggregator.{key}={value}" for key, value in own.items())])
    with (
        tempfile.TemporaryDirectory() as folder,
        Lab(at_rate(spec_of(parse(f"star:{ranks},{switch}")), bit_rate(rate))) as lab,
    ):
        out = Path(folder) / "found.json"
        command = [sys.executable, "-m", "syntony.benchmarks.in_network.sharing_rank", str(out), str(size)]
        if lab.run(command) != 0:
            raise LabError("a rank of the benchmark failed; its output is above")
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def rows(found: dict[str, Any], size: int, slots: int) -> Iterator[Row]:
    """Of what `measured` found: one job, and two."""
    packets = -(-size // LAB_SLOT_BYTES) * REPETITIONS
    alone = size / found["alone"]["seconds"]
    for jobs, what in ((1, found["alone"]), (2, found["both"])):
        together = jobs * size / what["seconds"]
        passed = f"{what['passed_on'] / (jobs * packets):.1%}"
        cells = slots, jobs, f"{what['seconds'] * 1e3:.1f}", f"{together / 1e6:.2f}", f"{together / alone:.2f}", passed
        yield Row(cells, f"less than {GOAL} of one alone" if together < GOAL * alone else "")


def _parts(options: argparse.Namespace) -> Iterator[Part]:
    count = size(options.size)

    def all_rows() -> Iterator[Row]:
        for slots in map(int, options.slots.split(",")):
            yield from rows(measured(options.ranks, options.rate, count, slots), count, slots)

    title = f"jobs on {options.ranks} hosts around one switch at {options.rate}, all_reduce of {options.size}"
    yield Part(title, COLUMNS, all_rows)


COLUMNS = (("slots", 6), ("jobs", 5), ("ms", 9), ("MB/s together", 13), ("of one alone", 12), ("passed on", 9))
TABLE = Table("sharing", "two jobs that share a switch's slots, against one alone", _parts, _configure)
