"""Simulated beside measured: the table's lines, its summary, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from syntony.benchmarks.sim_vs_lab.cells import Cell, Fabric
from syntony.benchmarks.sim_vs_lab.compared import Compared
from syntony.benchmarks.sim_vs_lab.measurement import Measured
from syntony.benchmarks.sim_vs_lab.model import burst_seconds, goodput
from syntony.benchmarks.tables import Row
from syntony.lab.lab_spec import LabSpec

WITHIN = 0.10
"""Of the measured time: what the issue of trust allows a prediction to be off."""

COLUMNS = (
    ("algorithm", -12), ("collective", -11), ("MiB", 4), ("bound", 9), ("simulated", 9), ("measured", 9), ("spread", 7),
    ("ratio", 6),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Line(Compared):
    """One cell."""

    cell: Cell

    @property
    def holds(self) -> bool:
        return abs(self.ratio - 1) <= WITHIN


def row(cell: Line) -> Row:
    """The table's line; missed is what is too far off."""
    times = [f"{1e3 * seconds:.1f}" for seconds in (cell.prediction.bound, cell.prediction.seconds, cell.median)]
    spread = f"{cell.spread:.1%}" if len(cell.measured) > 1 else ""
    what = cell.cell.case.algorithm, cell.cell.case.collective, cell.cell.size >> 20
    return Row((*what, *times, spread, f"{cell.ratio:.3f}"), "" if cell.holds else f"off by {cell.ratio - 1:+.0%}")


def heading(fabric: Fabric, spec: LabSpec, measured: Measured, message: int, memory: float) -> str:
    """What stands above a fabric's lines: what its wires carry, by arithmetic and by measurement."""
    shares = [ceiling.best / float(ceiling.near.rate) for ceiling in measured.ceilings]
    latency = 1e6 * median(measured.latency().values())
    share = float(goodput(fabric.bytes_per_second, message) / fabric.bytes_per_second)
    lines = [
        f"{fabric.topology} at {fabric.rate}: {len(spec.machines)} machines, {len(spec.wires)} wires; "
        f"load average {measured.load[0]:.1f} to {measured.load[1]:.1f}",
        f"  of a wire's rate: our bytes {share:.1%} (computed), TCP's payload {min(shares):.1%} to {max(shares):.1%} "
        f"(measured); bucket {1e3 * burst_seconds(spec):.1f} ms; latency {latency:.0f} us; "
        f"memory {memory / 1e9:.1f} GB/s; times in ms",
    ]
    return "\n".join(lines)


def summary(rows: Sequence[Line]) -> str:
    """The last line: how many cells hold, and the furthest off."""
    good = [row for row in rows if row.holds]
    worst = max(rows, key=lambda row: abs(row.ratio - 1))
    cell = worst.cell
    return (
        f"{len(good)} of {len(rows)} cells within {WITHIN:.0%}; simulated / measured from "
        f"{min(row.ratio for row in rows):.3f} to {max(row.ratio for row in rows):.3f}, "
        f"median {median(row.ratio for row in rows):.3f}; "
        f"furthest off: {cell.case.algorithm} {cell.case.collective}, {cell.size >> 20} MiB, on {cell.fabric.topology} "
        f"at {cell.fabric.rate}"
    )


def document(row: Line) -> dict[str, Any]:
    """Bytes and seconds."""
    return {
        "topology": row.cell.fabric.topology,
        "rate": row.cell.fabric.rate,
        "algorithm": row.cell.case.algorithm,
        "collective": row.cell.case.collective,
        "size": row.cell.size,
        "bound": row.prediction.bound,
        "simulated": row.prediction.seconds,
        "measured": row.median,
        "iterations": list(row.measured),
        "ratio": row.ratio,
        "within": row.holds,
    }


def wires(fabric: Fabric, measured: Measured) -> dict[str, Any]:
    """A lab's own figures: bytes/s and seconds."""
    return {
        "topology": fabric.topology,
        "rate": fabric.rate,
        "ceilings": [
            {"from": ceiling.names[0], "to": ceiling.names[1], "rate": float(ceiling.near.rate), "tcp": ceiling.best}
            for ceiling in measured.ceilings
        ],
        "latency": measured.latency(),
        "load": list(measured.load),
    }
