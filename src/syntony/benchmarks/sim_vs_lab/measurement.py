"""One lab from beginning to end: built, its wires measured, all its cells timed, and gone again."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from syntony.benchmarks.sim_vs_lab.cells import Case
from syntony.benchmarks.sim_vs_lab.rank import Job
from syntony.lab.lab import Lab
from syntony.lab.lab_spec import LabError, LabSpec
from syntony.lab.wires.ceiling import Ceiling, median_round_trip
from syntony.synth.formats.program_file import write_program
from syntony.synth.model.program import Program


@dataclass(frozen=True)
class Measured:
    """What the lab said. `seconds`: every iteration, by case and size; `load`: processes that wanted to run (the
    kernel's average of the last minute) when it began and when it ended."""

    ceilings: tuple[Ceiling, ...]
    seconds: Mapping[tuple[Case, int], tuple[float, ...]]
    load: tuple[float, float]

    def latency(self) -> dict[int, float]:
        """Seconds one way, by wire: half of the median round trip of a byte."""
        trips: dict[int, list[float]] = {}
        for ceiling in self.ceilings:
            trips.setdefault(ceiling.wire.id, []).append(median_round_trip(ceiling))
        return {wire: median(found) / 2 for wire, found in trips.items()}


def measure(spec: LabSpec, programs: Mapping[Case, Program], sizes: Mapping[int, int], late: float = 0.0) -> Measured:
    """Runs every program at every size (bytes: iterations) in the lab of `spec`; the last rank is `late` by seconds.

    Raises LabError where there can be no lab, and where a rank fails: a wrong result is among the reasons.
    """
    cells = [(case, size) for case in programs for size in sizes]
    with tempfile.TemporaryDirectory(prefix="syntony-sim-vs-lab-") as folder:
        place = Path(folder)
        jobs = []
        for number, (case, program) in enumerate(programs.items()):
            path = place / f"program{number}.json"
            write_program(program, path)
            jobs += [Job(str(path), case.collective, size, count, late) for size, count in sizes.items()]
        (place / "work").write_text(json.dumps([asdict(job) for job in jobs]))
        said: list[bytes] = []
        before = os.getloadavg()[0]
        with Lab(spec) as lab:
            ceilings = lab.ceilings()
            code = lab.run(_command(place), write=said.append)
        if code:
            raise LabError(f"{spec.topology.name}: the ranks failed\n" + b"".join(said).decode(errors="replace"))
        found: Sequence[Sequence[float]] = json.loads((place / "results").read_text())
    seconds = {cell: tuple(times) for cell, times in zip(cells, found, strict=True)}
    return Measured(ceilings, seconds, (before, os.getloadavg()[0]))


def _command(place: Path) -> list[str]:
    return [sys.executable, "-m", "syntony.benchmarks.sim_vs_lab.rank", str(place / "work"), str(place / "results")]
