"""Table `sccl`: exact schedules of a DGX-1 and of a ring of 8, one by one, and the frontiers they should have been.

Instances and names of points are those of Cai et al., SCCL (PPoPP'21), section 5: L latency-optimal, B
bandwidth-optimal. Their z3 seconds are msccl-tools' with z3 5.4, measured once on one core of another 2-core machine,
end to end per instance; the number for all_to_all (24, 8, 8) is the published one (microsoft/msccl-tools#52).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import islice

from syntony.benchmarks.synthesis.table import Row, Stopwatch, proven_table, timed
from syntony.benchmarks.tables import Part
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.sccl.exact import solve_exactly
from syntony.synth.engines.sccl.frontier import pareto
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.topologies.parse import parse

EACH, TOGETHER = 5.0, 60.0
"""Goals in seconds of one processor (the solver uses one): every instance but the slow ones, and all of them."""
SLOW = {("all_to_all", 24, 8, 8): 15.0}
TIMEOUT = 120.0
PATIENCE = 20.0
POINTS = 4
"""Points shown of a frontier that has no end (broadcast and reduce only come nearer to their bound)."""


@dataclass(frozen=True)
class Instance:
    """(C, S, R) on a topology. `kinds` are solved in turn; z3: seconds of the first, as printed; "" where unknown."""

    topology: str
    kinds: tuple[str, ...]
    chunks: int
    steps: int
    rounds: int
    optimal: str
    z3: str


_GATHERS = ("all_gather", "reduce_scatter")
_SPREADS = ("broadcast", "reduce")
_ENDS = ("gather", "scatter")

INSTANCES = (
    Instance("dgx1", _GATHERS, 1, 2, 2, "L", "0.19"),
    Instance("dgx1", _GATHERS, 2, 2, 3, "L", "0.41"),
    Instance("dgx1", _GATHERS, 2, 3, 3, "", "1.18"),
    Instance("dgx1", _GATHERS, 3, 3, 4, "", "1.47"),
    Instance("dgx1", _GATHERS, 3, 4, 4, "", "2.30"),
    Instance("dgx1", _GATHERS, 4, 3, 5, "", "2.56"),
    Instance("dgx1", _GATHERS, 5, 3, 6, "", "5.92"),
    Instance("dgx1", _GATHERS, 6, 3, 7, "B", "19.9"),
    Instance("dgx1", _GATHERS, 6, 7, 7, "B", "34.2"),
    Instance("dgx1", _SPREADS, 2, 2, 2, "L", "0.11"),
    Instance("dgx1", _SPREADS, 6, 3, 3, "", "0.28"),
    Instance("dgx1", _SPREADS, 12, 4, 4, "", "2.31"),
    Instance("dgx1", _SPREADS, 18, 5, 5, "", "20.8"),
    Instance("dgx1", _ENDS, 1, 2, 2, "L", "0.23"),
    Instance("dgx1", _ENDS, 2, 2, 3, "L", "0.55"),
    Instance("dgx1", _ENDS, 3, 2, 4, "L", "0.95"),
    Instance("dgx1", _ENDS, 4, 2, 5, "L", "1.83"),
    Instance("dgx1", _ENDS, 5, 3, 6, "", "5.71"),
    Instance("dgx1", _ENDS, 6, 3, 7, "B", "7.66"),
    Instance("dgx1", ("all_to_all",), 8, 2, 3, "L", "5.26"),
    Instance("dgx1", ("all_to_all",), 8, 3, 3, "", "17.9"),
    Instance("dgx1", ("all_to_all",), 24, 2, 8, "L B", "> 60"),
    Instance("dgx1", ("all_to_all",), 24, 3, 8, "B", "> 60"),
    Instance("dgx1", ("all_to_all",), 24, 8, 8, "B", "133.7*"),
    Instance("dgx1", ("all_reduce",), 8, 4, 4, "L", ""),
    Instance("dgx1", ("all_reduce",), 16, 4, 6, "L", ""),
    Instance("dgx1", ("all_reduce",), 48, 6, 14, "B", ""),
    Instance("dgx1", ("all_reduce",), 48, 14, 14, "B", ""),
    Instance("ring:8", ("all_gather",), 1, 4, 4, "L", "0.18"),
    Instance("ring:8", ("all_gather",), 2, 4, 7, "L B", "0.35"),
    Instance("ring:8", ("all_gather",), 2, 7, 7, "B", "0.40"),
    Instance("ring:8", ("broadcast",), 2, 4, 4, "L", "0.05"),
    Instance("ring:8", ("broadcast",), 4, 5, 5, "", "0.08"),
    Instance("ring:8", ("broadcast",), 6, 6, 6, "", "0.15"),
    Instance("ring:8", ("gather",), 1, 4, 4, "L", "0.15"),
    Instance("ring:8", ("gather",), 2, 4, 7, "L B", "0.49"),
    Instance("ring:8", ("all_to_all",), 8, 4, 8, "L B", "7.7"),
)

FRONTIERS = tuple(
    (topology, kind)
    for topology in ("dgx1", "ring:8")
    for kind in ("all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all", "all_reduce")
)


def problem(instance: Instance, kind: str) -> Collective:
    """The collective whose chunks are as many as the instance counts: per rank's buffer, or of the one block."""
    ranks = parse(instance.topology).ranks
    per_block = instance.chunks // ranks if kind == "all_to_all" else instance.chunks
    return Collective.make(kind, ranks, per_block)


def solve(instance: Instance, kind: str) -> Schedule:
    """By engine sccl."""
    topology = parse(instance.topology)
    return solve_exactly(topology, problem(instance, kind), instance.steps, instance.rounds, Budget(TIMEOUT))


def _instances() -> Iterator[Row]:
    _load_solvers()
    for instance in INSTANCES:
        for kind in instance.kinds:
            point = (instance.chunks, instance.steps, instance.rounds)
            schedule, seconds = timed(partial(solve, instance, kind))
            allowed = SLOW.get((kind, *point), EACH)
            used = f"{len(schedule.rounds)} steps, {int(schedule.rounds.sum())} rounds"
            peer = instance.z3 if kind == instance.kinds[0] else ""
            missed = f"more than {allowed:g} s" if seconds.processor > allowed else ""
            yield Row(
                (instance.topology, kind, point, instance.optimal, *seconds.cells, peer, used), missed, (schedule,)
            )


def _sum(rows: Sequence[Row]) -> list[str]:
    wall, processor = (sum(float(str(row.cells[column])) for row in rows) for column in (4, 5))
    return [
        "",
        f"{len(rows)} instances, every schedule checked: {wall:.1f} s, {processor:.1f} s of one processor "
        f"(goal: {TOGETHER:g} s together, {EACH:g} s each, (24, 8, 8) 15 s)",
        "z3 s: msccl-tools with z3 5.4 on another 2-core machine; > 60: stopped there; *: as published (#52)",
    ]


def _frontiers() -> Iterator[Row]:
    _load_solvers()
    for name, kind in FRONTIERS:
        topology = parse(name)
        points = pareto(topology, Collective.make(kind, topology.ranks), Budget(TIMEOUT), PATIENCE)
        watch = Stopwatch()
        for point in islice(points, POINTS):
            seconds = watch.stop(point.schedule)
            published = max(
                (
                    instance
                    for instance in INSTANCES
                    if (instance.topology, instance.steps) == (name, point.steps) and kind in instance.kinds
                ),
                key=lambda instance: Fraction(instance.chunks, instance.rounds),
                default=None,
            )
            theirs = (published.chunks, published.steps, published.rounds) if published else ""
            proof = "least at any cut" if point.optimal else point.schedule.proof.split("; ", 2)[2]
            place = (point.chunks, point.steps, point.rounds)
            yield Row((name, kind, place, point.ratio, theirs, *seconds.cells, proof), schedules=(point.schedule,))
            watch = Stopwatch()


def _load_solvers() -> None:
    """Imports are not what is measured."""
    import scipy.optimize  # noqa: F401


_WHERE = (("topology", -8), ("collective", -14))
_TIME = (("s", 6), ("cpu s", 6))

TABLE = proven_table(
    "sccl",
    "exact schedules by steps, rounds and chunks, and the frontiers of latency against bandwidth",
    (
        Part(
            "Instances of SCCL (PPoPP'21): L latency-optimal, B bandwidth-optimal",
            (*_WHERE, ("(C, S, R)", -12), ("", -3), *_TIME, ("z3 s", 6), ("made", -20)),
            _instances,
            _sum,
        ),
        Part(
            "Frontiers: for each number of steps the least R/C; published: the best of the instances above there",
            (*_WHERE, ("(C, S, R)", -12), ("R/C", 6), ("published", -12), *_TIME, ("proven", -16)),
            _frontiers,
        ),
    ),
)
