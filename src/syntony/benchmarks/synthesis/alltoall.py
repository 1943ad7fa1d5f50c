"""Table `alltoall`: all_to_all at the exact throughput bound, by flows; without symmetry, within 2 % of a bound.

Every row is solved from scratch, bounds included, and every schedule goes through the checker.

Peers' seconds are as published, on their own machines: PCCL (arXiv 2606.07019), 11.68 min for 512 ranks by its abstract
(of which network it does not say), and 1.83 min for an 8x8 mesh at second hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from syntony.benchmarks.synthesis.table import Row, Stopwatch, proven_table
from syntony.benchmarks.tables import Part
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.flow.search import run
from syntony.synth.model.collective import Collective
from syntony.synth.symmetry.throughput import gap_of
from syntony.topologies.parse import parse


@dataclass(frozen=True)
class Instance:
    """`goal` in seconds, where there is one; `gap` that is allowed; `peer`: seconds as printed."""

    topology: str
    goal: float | None = None
    peer: str = ""
    gap: float = 0


INSTANCES = (
    Instance("dgx1"),
    Instance("dgx-a100:2"),
    Instance("hypercube:5"),
    Instance("torus:4x4"),
    Instance("mesh:8x8", peer="109.8"),
    Instance("torus:8x8", 3.0),
    Instance("rail:boxes=32,gpus=8,rails=8"),
    Instance("torus:8x8x8", 10.0, "700.8"),
    Instance("torus:10x10x10", 60.0, "", 0.01),
    Instance("rail:boxes=512,gpus=8,rails=8", 60.0, "", 0.01),
    Instance("torus:8x8x8,without=0-1", 60.0, "700.8", 0.02),
    Instance("torus:8x8x8,without=rank0,slowed=8-16@50%", 60.0, "700.8", 0.02),
    Instance("dgx-h100:32,without=nic0.0", None, "", 0.02),
)


def _rows() -> Iterator[Row]:
    import scipy.optimize  # noqa: F401  its import is not what is measured

    for instance in INSTANCES:
        topology = parse(instance.topology)
        watch = Stopwatch()
        schedule = run(topology, Collective.make("all_to_all", topology.ranks), 1 << 30, Budget())
        seconds = watch.stop(schedule)
        assert schedule.bounds is not None
        gap, algbw = gap_of(schedule), f"{schedule.bounds.throughput.algbw / 1e9:.3f}"
        listed = len(schedule.transfers)
        told = gap if not gap or gap.denominator < 100 else f"{float(gap):.2%}"
        cells = (instance.topology, topology.ranks, algbw, told, listed, *seconds.cells, instance.peer)
        slow = instance.goal is not None and seconds.processor > instance.goal
        above = gap is not None and gap > instance.gap
        yield Row(cells, "above the bound" if above else f"more than {instance.goal:g} s" if slow else "", (schedule,))


TABLE = proven_table(
    "alltoall",
    "all_to_all at the exact throughput bound, by flows",
    (
        Part(
            "Flows at the exact bound; listed: transfers of representatives; peer: PCCL, as published",
            (
                ("topology", -42), ("ranks", 5), ("GB/s", 9), ("gap", 5), ("listed", 7),
                ("s", 6), ("cpu s", 6), ("peer s", 6),
            ),
            _rows,
        ),
    ),
)  # fmt: skip
