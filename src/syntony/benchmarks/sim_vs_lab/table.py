"""The simulator against the lab: collectives timed on emulated networks, beside what the simulator says.

    python -m syntony.benchmarks lab sim_vs_lab [--quick] [--json] [--only WORD ...]

Root only (the lab is made of network namespaces), eight minutes; --quick is one lab and one size. Results are checked
before their times are kept. Exit code 1 when a cell is off by more than 10 %.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from syntony.benchmarks.sim_vs_lab import report
from syntony.benchmarks.sim_vs_lab.cells import CASES, FABRICS, QUICK_FABRICS, QUICK_SIZES, SIZES, Cell, Fabric
from syntony.benchmarks.sim_vs_lab.measurement import Measured, measure
from syntony.benchmarks.sim_vs_lab.prediction import Predictor, memory_rate
from syntony.benchmarks.tables import Part, Table
from syntony.lab.lab_spec import LabError
from syntony.synth.simulation.program_simulator import executor_slice


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="one fabric, one size: half a minute")
    parser.add_argument("--only", action="append", metavar="WORD", help="fabrics whose name has WORD; may be repeated")


def _fabrics(options: argparse.Namespace) -> list[Fabric]:
    chosen = [
        fabric
        for fabric in (QUICK_FABRICS if options.quick else FABRICS)
        if options.only is None or any(word in f"{fabric.topology} {fabric.rate}" for word in options.only)
    ]
    if not chosen:
        raise LabError(f"no fabric has {' or '.join(options.only)} in its name: {', '.join(map(_name, FABRICS))}")
    return chosen


def _parts(options: argparse.Namespace) -> Iterator[Part]:
    fabrics = _fabrics(options)
    memory, all_cells = memory_rate(), []
    for fabric in fabrics:
        cells, measured = compare(fabric, QUICK_SIZES if options.quick else SIZES, memory)
        all_cells += cells
        title = report.heading(fabric, fabric.spec(), measured, executor_slice(4), memory)
        last = [report.summary(all_cells)] if fabric is fabrics[-1] else []
        yield _part(title, cells, last)


def _part(title: str, cells: Sequence[report.Line], closing: list[str]) -> Part:
    return Part(title, report.COLUMNS, lambda: map(report.row, cells), lambda rows: closing)


def _document(options: argparse.Namespace) -> tuple[Any, bool]:
    fabrics = _fabrics(options)
    memory, cells, labs = memory_rate(), [], []
    for fabric in fabrics:
        found, measured = compare(fabric, QUICK_SIZES if options.quick else SIZES, memory)
        cells += found
        labs.append(report.wires(fabric, measured))
    told = {"memory": memory, "labs": labs, "cells": [report.document(cell) for cell in cells]}
    return told, all(cell.holds for cell in cells)


def compare(fabric: Fabric, sizes: dict[int, int], memory: float) -> tuple[list[report.Line], Measured]:
    """All cells of one fabric, measured and then simulated."""
    spec = fabric.spec()
    programs = {case: case.program() for case in CASES}
    measured = measure(spec, programs, sizes)
    predictor = Predictor(spec, measured.latency(), memory)
    rows = [
        report.Line(
            cell=Cell(fabric, case, size),
            prediction=predictor.predict(programs[case], size),
            measured=measured.seconds[case, size],
        )
        for case in CASES
        for size in sizes
    ]
    return rows, measured


def _name(fabric: Fabric) -> str:
    return f"{fabric.topology} {fabric.rate}"


TABLE = Table("sim_vs_lab", "simulated beside measured times", _parts, _configure, _document)
