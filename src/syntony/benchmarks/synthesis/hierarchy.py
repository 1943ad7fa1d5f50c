"""Table `hierarchy`: collectives composed level by level, beside trees over the whole network (engine forest).

Cells of a composition: how far its busiest link is above the exact bound, and the part of the bounds (latency included)
that it reaches at 64 MB, simulated without slices. A dash: the composition does not fit the levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from syntony.benchmarks.synthesis.table import Row, Stopwatch, proven_table
from syntony.benchmarks.tables import Part
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.hierarchy.compositions import COMPOSITIONS
from syntony.synth.engines.registry import engine_named
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.levels import levels_of
from syntony.synth.symmetry.throughput import gap_of
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

SIZE = 1 << 26
KINDS = ("all_gather", "all_reduce")
NEAR = 0.02
"""Above the bound at most, by the composition that is nearest."""

NAMES = (
    "dgx-a100:4",
    "rail:boxes=4,gpus=8,rails=8",
    "superpod:units=2,boxes=2,gpus=4,spines=2",
    "fat-tree:4",
    "dragonfly:a=4,p=2,h=2,g=3",
    "torus:8x8",
    "torus:4x4x4",
)


def _rows() -> Iterator[Row]:
    import scipy.optimize  # noqa: F401  its import is not what is measured

    for name in NAMES:
        topology = parse(name)
        levels = levels_of(topology, Collective.make("all_gather", topology.ranks))
        for kind in KINDS:
            engines = [f"hierarchy:{composition.name}" for composition in COMPOSITIONS] + ["forest"]
            made, seconds = _made(topology, kind, engines)
            gaps = [gap_of(schedule) or 0 for engine, schedule in made.items() if engine != "forest"]
            cells = [_cell(made[engine]) if engine in made else "-" for engine in engines]
            far = min(gaps) > NEAR
            yield Row((name, kind, levels, *cells, f"{seconds:.2f}"), f"more than {NEAR:.0%} above" if far else "")


def _made(topology: Topology, kind: str, engines: Sequence[str]) -> tuple[dict[str, Schedule], float]:
    """The schedules of the engines that make one, checked, and their processor seconds together."""
    made, seconds = {}, 0.0
    for engine in engines:
        watch = Stopwatch()
        with suppress(EngineError):
            made[engine] = engine_named(engine).run(topology, Collective.make(kind, topology.ranks), SIZE, Budget())
            seconds += watch.stop(made[engine]).processor
    return made, seconds


def _cell(schedule: Schedule) -> str:
    return f"+{float(gap_of(schedule) or 0):.1%} {simulate(schedule, SIZE).fraction:.0%}"


TABLE = proven_table(
    "hierarchy",
    "collectives composed level by level",
    (
        Part(
            "Above the exact bound; of the bounds at 64 MB, simulated; cpu s: of all of a row",
            (
                ("topology", -40), ("", -10), ("levels", -6),
                *((composition.name, 12) for composition in COMPOSITIONS), ("forest", 12), ("cpu s", 6),
            ),
            _rows,
        ),
    ),
)  # fmt: skip
