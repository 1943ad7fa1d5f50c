"""Table `allreduce`: meshes on which reduce_scatter, then all_gather is not the best, at 1 GB.

Peers' rates (GB/s at 1 GB) and solver seconds: Table IV of PipeComm (PKU, 2026), as published; links of 50 GB/s, of
which one dimension has two or four in the last two rows. The optimum is that of trees (synth/bounds/references.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.synthesis.table import Part, Row, Stopwatch, Table
from synth.collective import Collective
from synth.engines.engine import Budget
from synth.engines.forest import run
from synth.simulator import simulate
from topologies.parse import parse

SIZE = 10**9
SLICE = 1 << 18
"""Bytes of a message at most: large ones leave the pipeline empty, at 1 GB."""
ENOUGH = 0.95
"""Of the optimum, simulated."""
PATIENCE = 3.0
"""Times the peer's solver seconds."""


@dataclass(frozen=True)
class Instance:
    """Rates in GB/s: the optimum of trees, and three peers'; the fastest peer's solver seconds."""

    topology: str
    optimum: float
    taccl: float
    teccl: float
    pipecomm: float
    seconds: float


INSTANCES = (
    Instance("mesh:4x4,bandwidth=50e9", 80.0, 34.63, 50.37, 73.37, 0.304),
    Instance("mesh:5x5,bandwidth=50e9", 250 / 3, 29.68, 52.00, 73.10, 0.434),
    Instance("mesh:6x6,bandwidth=50e9", 600 / 7, 28.97, 44.44, 72.95, 3.417),
    Instance("mesh:4x4,bandwidth=50e9x100e9", 120.0, 48.40, 80.60, 106.69, 0.136),
    Instance("mesh:4x4,bandwidth=50e9x200e9", 200.0, 63.92, 107.47, 193.80, 4.132),
)


def _rows() -> Iterator[Row]:
    import scipy.optimize  # noqa: F401  its import is not what is measured

    for instance in INSTANCES:
        topology = parse(instance.topology)
        watch = Stopwatch()
        schedule = run(topology, Collective.make("all_reduce", topology.ranks), SIZE, Budget())
        seconds = watch.stop(schedule)
        steady = float(1 / schedule.seconds_per_byte()) / 1e9
        reached = simulate(schedule, SIZE, slice_bytes=SLICE).algbw / 1e9
        missed = []
        if reached < ENOUGH * instance.optimum:
            missed.append(f"less than {ENOUGH:.0%} of the optimum")
        if seconds.processor > PATIENCE * instance.seconds:
            missed.append(f"more than {PATIENCE:g} times {instance.seconds} s")
        rates = [f"{rate:.2f}" for rate in (instance.optimum, steady, reached)]
        part = f"{reached / instance.optimum:.1%}"
        peers = (instance.taccl, instance.teccl, instance.pipecomm, instance.seconds)
        yield Row((instance.topology, *rates, part, *seconds.cells, *peers), "; ".join(missed), (schedule,))


TABLE = Table(
    "allreduce",
    "all_reduce on meshes, beyond reduce_scatter and all_gather",
    (
        Part(
            f"GB/s at 1 GB, simulated in messages of {SLICE >> 10} KiB; steady: of an endless message",
            (
                ("topology", -30), ("optimum", 7), ("steady", 7), ("1 GB", 7), ("", 6), ("s", 5), ("cpu s", 5),
                ("TACCL", 6), ("TE-CCL", 6), ("PipeComm", 8), ("its s", 6),
            ),
            _rows,
        ),
    ),
)  # fmt: skip
