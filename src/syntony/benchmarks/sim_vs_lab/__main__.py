"""The simulator against the lab: collectives timed on emulated networks, beside what the simulator says.

    python -m syntony.benchmarks.sim_vs_lab [--quick] [--json] [--only WORD ...]

Root only (the lab is made of network namespaces), eight minutes; --quick is one lab and one size. Results are checked
before their times are kept. Exit code 1 when a cell is off by more than 10 %.
"""

from __future__ import annotations

import argparse
import json
import sys

from syntony.base.command import UserError
from syntony.benchmarks.sim_vs_lab import report
from syntony.benchmarks.sim_vs_lab.cells import CASES, FABRICS, QUICK_FABRICS, QUICK_SIZES, SIZES, Cell, Fabric
from syntony.benchmarks.sim_vs_lab.measurement import Measured, measure
from syntony.benchmarks.sim_vs_lab.prediction import Predictor, memory_rate
from syntony.lab.lab import Stopped, stopping_by_signals
from syntony.lab.lab_spec import LabError
from syntony.synth.simulation.program_simulator import executor_slice


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m syntony.benchmarks.sim_vs_lab", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="one fabric, one size: half a minute")
    parser.add_argument("--only", action="append", metavar="WORD", help="fabrics whose name has WORD; may be repeated")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    options = parser.parse_args(words)
    chosen = [
        fabric
        for fabric in (QUICK_FABRICS if options.quick else FABRICS)
        if options.only is None or any(word in f"{fabric.topology} {fabric.rate}" for word in options.only)
    ]
    if not chosen:
        raise LabError(f"no fabric has {' or '.join(options.only)} in its name: {', '.join(map(_name, FABRICS))}")
    memory = memory_rate()
    rows: list[report.Row] = []
    labs = []
    for fabric in chosen:
        found, measured = compare(fabric, QUICK_SIZES if options.quick else SIZES, memory)
        rows += found
        labs.append(report.wires(fabric, measured))
        if not options.json:
            print(report.heading(fabric, fabric.spec(), measured, executor_slice(4), memory))
            print("\n".join(f"  {row.line()}" for row in found), flush=True)
    if options.json:
        print(json.dumps({"memory": memory, "labs": labs, "cells": [report.document(row) for row in rows]}, indent=2))
    else:
        print(report.summary(rows))
    return 0 if all(row.holds for row in rows) else 1


def compare(fabric: Fabric, sizes: dict[int, int], memory: float) -> tuple[list[report.Row], Measured]:
    """All cells of one fabric, measured and then simulated."""
    spec = fabric.spec()
    programs = {case: case.program() for case in CASES}
    measured = measure(spec, programs, sizes)
    predictor = Predictor(spec, measured.latency(), memory)
    rows = [
        report.Row(Cell(fabric, case, size), predictor.predict(programs[case], size), measured.seconds[case, size])
        for case in CASES
        for size in sizes
    ]
    return rows, measured


def _name(fabric: Fabric) -> str:
    return f"{fabric.topology} {fabric.rate}"


if __name__ == "__main__":
    try:
        with stopping_by_signals():
            raise SystemExit(main(sys.argv[1:]))
    except UserError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    except Stopped as stopped:
        raise SystemExit(stopped.code) from None
