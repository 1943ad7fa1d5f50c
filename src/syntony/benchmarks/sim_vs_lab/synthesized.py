"""Synthesized schedules on irregular networks: what engine `auto` was told, what is simulated, what is measured.

    python -m syntony.benchmarks lab irregular [--only WORD ..] [--budget SECONDS] [--kept FOLDER]

    schedule   by the simulator of schedules, on the network that the engine saw: every transfer has a way of its own
    simulated  the Program that it becomes, on the lab's wires, by the lab's routes, through the runtime's slots
    measured   that Program, run by ranks in the lab; its results are checked

Root only, ten minutes. Exit code 1 when a cell's simulated time is off by more than 12 %.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from syntony.base.wording import bytes_of
from syntony.benchmarks.sim_vs_lab.cells import Case
from syntony.benchmarks.sim_vs_lab.compared import Compared
from syntony.benchmarks.sim_vs_lab.measurement import Measured, measure
from syntony.benchmarks.sim_vs_lab.model import burst_seconds, goodput
from syntony.benchmarks.sim_vs_lab.networks import NETWORKS
from syntony.benchmarks.sim_vs_lab.prediction import Predictor, memory_rate
from syntony.benchmarks.tables import Part, Row, Table
from syntony.lab.lab_spec import DEFAULT_RATE, LabError, LabSpec, at_rate, spec_of
from syntony.synth.engines import auto
from syntony.synth.engines.engine import Budget, checked
from syntony.synth.formats import schedule_file
from syntony.synth.lowering.lower import lower
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.model.target import CPU
from syntony.synth.simulation.program_simulator import executor_slice
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.topologies.topology import Topology

RATE = DEFAULT_RATE / 4
"""Bytes/s of the fastest wire: 50 Mbit/s, so that two cores hold eight hosts."""
SIZE = 120 << 17
"""Bytes, which 4, 5, 6 and 8 ranks divide: so many that the runtime's slots hold a small part of what a rank sends."""
COLLECTIVES = ("all_reduce", "all_gather", "all_to_all")
ITERATIONS = 3
ALPHA = 50e-6
"""Seconds of a wire's latency, for the engine: what a byte takes in a lab of a busy machine."""
MEDIAN, MOST = 0.05, 0.12
"""Goals: how far a simulated time may be off the measured one."""


@dataclass(frozen=True, kw_only=True)
class Line(Compared):
    """One schedule. `promised`: seconds of it."""

    schedule: Schedule
    promised: float


def seen_by_engines(spec: LabSpec, memory: float) -> Topology:
    """The network with the rates of the lab's wires for our bytes; inside a host, `memory` bytes/s."""
    message = executor_slice(spec.topology.ranks)
    rates = {end.link: goodput(end.rate, message) for wire in spec.wires for end in wire.ends}
    links = tuple(
        replace(link, bandwidth=rates[link.id], alpha=ALPHA)
        if link.id in rates
        else replace(link, bandwidth=Fraction(round(memory)), alpha=1e-6)
        for link in spec.topology.links
    )
    return replace(spec.topology, links=links)


def compare(name: str, memory: float, budget: float, folder: Path) -> tuple[list[Line], Measured]:
    """All cells of a network. Schedules that are not in `folder` are synthesized, and written there."""
    spec = at_rate(spec_of(NETWORKS[name]()), RATE)
    schedules = [_schedule(spec, kind, memory, budget, folder / f"{name} {kind}.json") for kind in COLLECTIVES]
    programs = {Case(schedule.engine, schedule.collective.kind): lower(schedule, CPU) for schedule in schedules}
    found = measure(spec, programs, {SIZE: ITERATIONS})
    predictor = Predictor(spec, found.latency(), memory)
    slices = executor_slice(spec.topology.ranks)
    cells = [
        Line(
            schedule=schedule,
            promised=simulate(schedule, SIZE, slices).seconds - burst_seconds(spec),
            prediction=predictor.predict(program, SIZE),
            measured=found.seconds[case, SIZE],
        )
        for schedule, (case, program) in zip(schedules, programs.items(), strict=True)
    ]
    return cells, found


def _schedule(spec: LabSpec, kind: str, memory: float, budget: float, path: Path) -> Schedule:
    if path.exists():
        return schedule_file.read(path)
    collective = Collective.make(kind, spec.topology.ranks)
    schedule = checked(auto.run(seen_by_engines(spec, memory), collective, SIZE, Budget(budget)))
    schedule_file.write(schedule, path)
    return schedule


_COLUMNS = (
    ("network", -25), ("collective", -10), ("engine", -12), ("bound", 7), ("schedule", 8), ("simulated", 9),
    ("measured", 8), ("spread", 6), ("sim/run", 7), ("run/schedule", 12),
)  # fmt: skip


@dataclass(frozen=True)
class _Told(Row):
    cell: Line | None = None


def _row(name: str, cell: Line) -> _Told:
    times = (cell.prediction.bound, cell.promised, cell.prediction.seconds, cell.median)
    cells = (
        name, cell.schedule.collective.kind, cell.schedule.engine, *(f"{1e3 * seconds:.0f}" for seconds in times),
        f"{cell.spread:.1%}", f"{cell.ratio:.3f}", f"{cell.median / cell.promised:.3f}",
    )  # fmt: skip
    return _Told(cells, f"off by {cell.ratio - 1:+.0%}" if abs(cell.ratio - 1) > MOST else "", cell=cell)


def _closing(rows: Sequence[_Told]) -> list[str]:
    cells = [row.cell for row in rows if row.cell]
    if not cells:
        return []
    middle = median(abs(cell.ratio - 1) for cell in cells)
    return [
        f"{len(cells)} cells: off by {middle:.1%} in the median"
        + (f"  MISSED: {MEDIAN:.0%}" if middle > MEDIAN else "")
        + f", by {max(abs(cell.ratio - 1) for cell in cells):.1%} at most; measured per schedule: "
        f"{median(cell.median / cell.promised for cell in cells):.3f} in the median"
    ]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", action="append", metavar="WORD", help="networks whose name has WORD; may be repeated")
    parser.add_argument("--budget", type=float, default=4.0, metavar="SECONDS", help="for a schedule (default: 4)")
    parser.add_argument("--kept", type=Path, metavar="FOLDER", help="schedules, which the next run takes from there")


def _parts(options: argparse.Namespace) -> Iterator[Part]:
    names = [name for name in NETWORKS if options.only is None or any(word in name for word in options.only)]
    if not names:
        raise LabError(f"no network has {' or '.join(options.only)} in its name: {'; '.join(NETWORKS)}")
    title = f"{bytes_of(SIZE)}, the fastest wires at {float(RATE * 8 / 10**6):g} Mbit/s; times in ms"
    yield Part(title, _COLUMNS, lambda: _rows(names, options), _closing)


def _rows(names: Sequence[str], options: argparse.Namespace) -> Iterator[_Told]:
    memory = memory_rate()
    with TemporaryDirectory() as own:
        folder = options.kept or Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            cells, _ = compare(name, memory, options.budget, folder)
            yield from (_row(name, cell) for cell in cells)


TABLE = Table("irregular", "synthesized schedules, simulated and measured on ten networks", _parts, _configure)
