"""Table `priority`: something urgent behind 64 MiB of bulk, in shared memory and on a wire of 200 Mbit/s.

    idle       an all_reduce with nothing else going on
    behind     the same, posted in the midst of 64 MiB of all_reduces of the same class: it waits for them
    urgent     the same again, of class `high`, while the bulk is `low`
    bound      what was asked for: idle + (window + 2 chunks) / bandwidth. The window is what the low class may have on
               its way (SYNTONY_CREDIT), a chunk what it sends at once, the bandwidth the bulk's own in this run

All are medians, from the moment when the last rank calls it (where bulk keeps all cores busy, that may be late) to the
last one's end; every result is checked. The wire is the lab's (root only): two emulated hosts on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from syntony.base.arguments import count
from syntony.base.command import UserError
from syntony.base.quantity import bit_rate
from syntony.benchmarks.runtime.measured.priority_rank import SIZES, Timed, measure
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import run_ranks
from syntony.lab.lab import Lab
from syntony.lab.lab_spec import LabError, at_rate, spec_of
from syntony.topologies.parse import parse

WINDOW = 256 << 10
"""Bytes: SYNTONY_CREDIT unless somebody sets it."""
IN_MEMORY, ON_A_WIRE = 20, 5
"""Iterations of each size unless somebody says: bulk takes milliseconds, or 2.7 seconds."""
CHUNKS = {"shared memory": 128 << 10, "wire": WINDOW // 8}
"""Bytes that move at once: a round's piece (csrc/core/one_host); a slice, of which the window has four for each of two
operations."""


def _rows(kind: str, found: Sequence[Timed]) -> Iterator[Row]:
    for timed in found:
        bound = timed.idle + (WINDOW + 2 * CHUNKS[kind]) / timed.bandwidth
        figures = (timed.idle, timed.behind, timed.urgent, bound)
        rate = f"{timed.bandwidth / 1e6:,.0f}"
        cells = (f"{timed.size:,}", rate, *(f"{1e3 * seconds:.3f}" for seconds in figures))
        yield Row(cells, "later than its bound" if timed.urgent > bound else "")


def _in_memory(iterations: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="syntony-priority-") as folder:
        results = Path(folder) / "results"
        run_ranks(2, partial(measure, results=results, iterations=iterations, lead=0.002), silence=120.0)
        yield from _rows("shared memory", _read(results))


def _on_a_wire(iterations: int) -> Iterator[Row]:
    spec = at_rate(spec_of(parse("star:2")), bit_rate("200mbit"))
    with tempfile.TemporaryDirectory(prefix="syntony-priority-") as folder:
        results = Path(folder) / "results"
        said: list[bytes] = []
        command = [
            sys.executable,
            "-m",
            "syntony.benchmarks.runtime.measured.priority_rank",
            str(results),
            str(iterations),
        ]
        try:
            with Lab(spec) as lab:
                code = lab.run(command, write=said.append, environment=os.environ)
        except LabError as error:
            raise UserError(str(error)) from error
        if code:
            raise UserError("the ranks in the lab failed\n" + b"".join(said).decode(errors="replace"))
        yield from _rows("wire", _read(results))


def _read(results: Path) -> list[Timed]:
    return [Timed(**entry) for entry in json.loads(results.read_text())]


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    columns = (
        ("bytes", 10), ("bulk MB/s", 9), ("idle ms", 9), ("behind ms", 10), ("urgent ms", 10), ("bound ms", 9),
    )  # fmt: skip
    memory = Part(
        "An urgent all_reduce behind 64 MiB, 2 ranks in shared memory",
        columns,
        lambda: _in_memory(options.iterations or IN_MEMORY),
    )
    wire = Part(
        "The same between 2 emulated hosts at 200 Mbit/s",
        columns,
        lambda: _on_a_wire(options.iterations or ON_A_WIRE),
    )
    return tuple(part for name, part in (("memory", memory), ("wire", wire)) if options.only in (None, name))


def _configure(parser: argparse.ArgumentParser) -> None:
    sizes = ", ".join(f"{size:,}" for size in SIZES)
    parser.add_argument(
        "--iterations",
        type=count,
        metavar="N",
        help=f"of each size ({sizes} bytes): {IN_MEMORY} in memory, {ON_A_WIRE} on the wire, where bulk takes seconds",
    )
    parser.add_argument("--only", choices=("memory", "wire"), help="one of the two")


TABLE = Table("priority", "something urgent behind 64 MiB of bulk", _parts, _configure)
