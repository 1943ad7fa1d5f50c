"""Table `syccl`: all eight collectives on the largest fabric of SyCCL's evaluation, at the proven throughput.

512 H800: 64 hosts of 8 GPUs, NVLink at 200 GB/s per direction, a 400 Gb/s NIC per GPU, 8 rails.

Peer, as published (Cao et al., SIGCOMM'25, abstract): near-optimal schedules for such fabrics in tens of minutes, on
192 cores (section 7.1). Its rates per size stand in figures only, so no column repeats them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from syntony.benchmarks.synthesis.table import Row, proven_table, timed
from syntony.benchmarks.tables import Part
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.flow import search as flow
from syntony.synth.engines.forest import search as forest
from syntony.synth.engines.workers import seconds_at
from syntony.synth.model.collective import Collective
from syntony.synth.symmetry.throughput import gap_of
from syntony.topologies.parse import parse

FABRIC = "rail:boxes=64,gpus=8,rails=8,bandwidth=200GB/s"
TREES = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce")
PATHS = ("all_to_all", "scatter", "gather")
SIZE = 1 << 30
MOST_SECONDS = 60.0


def _rows() -> Iterator[Row]:
    fabric = parse(FABRIC)
    for kind in (*TREES, *PATHS):
        engine = forest if kind in TREES else flow
        schedule, took = timed(
            partial(engine.run, fabric, Collective.make(kind, fabric.ranks), SIZE, Budget(timeout=MOST_SECONDS))
        )
        gap = gap_of(schedule)
        assert gap is not None
        seconds = seconds_at(schedule, SIZE)
        missed = "" if gap <= 0.01 else "more than 1 % above the bound"
        if took.processor > MOST_SECONDS:
            missed = f"more than {MOST_SECONDS:g} s"
        yield Row(
            (kind, schedule.engine, f"{float(gap):.1%}", f"{SIZE / seconds / 1e9:.1f}", schedule.steps, *took.cells),
            missed,
        )


TABLE = proven_table(
    "syccl",
    "all collectives on SyCCL's 512 H800",
    (
        Part(
            "64 hosts x 8 H800, 8 rails; gap: to the throughput bound; GB/s: size over simulated time, 1 GiB",
            (
                ("collective", -14), ("engine", -8), ("gap", 6), ("GB/s", 8), ("steps", 5), ("s", 6), ("cpu s", 6),
            ),
            _rows,
        ),
    ),
)  # fmt: skip
