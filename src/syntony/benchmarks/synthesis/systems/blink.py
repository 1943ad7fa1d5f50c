"""Table `blink`: trees near the bound beside exact ones: how many, how near, how soon.

Peer: engine `forest`, exact, run beside it. Uneven machines have every bandwidth multiplied by a fraction between 1/2
and 3/2, drawn once and for all: what a probe measures, or what is left of a degraded machine. Wang et al., Blink
(MLSys'20), publish no table of rates and trees by machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial

from syntony.benchmarks.synthesis.table import Row, proven_table, timed
from syntony.benchmarks.tables import Part
from syntony.synth.engines.blink.packing import EPSILON
from syntony.synth.engines.blink.search import LOSS, run
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.forest import search as forest
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.throughput import gap_of, seconds_per_byte
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

EVEN = (
    ("dgx1", "broadcast"),
    ("dgx1", "all_gather"),
    ("dgx-a100:2", "all_gather"),
    ("dgx-a100:2", "all_reduce"),
    ("dgx-h100:2", "all_gather"),
    ("mi250:2", "all_gather"),
    ("torus:8x8", "broadcast"),
    ("torus:8x8", "all_gather"),
)
UNEVEN = (
    ("dgx1", "all_gather"),
    ("mesh:4x4", "all_gather"),
    ("mesh:8x8", "broadcast"),
    ("mesh:8x8", "all_gather"),
    ("dgx-a100:2", "all_gather"),
    ("dgx-a100:2", "reduce_scatter"),
)
SEED = 3


def _uneven(name: str) -> Topology:
    chance = random.Random(SEED)
    topology = parse(name)
    links = [
        replace(link, bandwidth=link.bandwidth * Fraction(chance.randint(50, 150), chance.randint(90, 110)))
        for link in topology.links
    ]
    return replace(topology, name=f"{name}, uneven", links=tuple(links), generators=())


def _rows() -> Iterator[Row]:
    machines = [(parse(name), kind) for name, kind in EVEN] + [(_uneven(name), kind) for name, kind in UNEVEN]
    for topology, kind in machines:
        collective = Collective.make(kind, topology.ranks)
        exact: Schedule | None = None
        peer: tuple[object, ...] = ("none", "", "")
        with suppress(EngineError):
            exact, took = timed(partial(forest.run, topology, collective, 1 << 30, Budget()))
            peer = (len(exact.collective.chunks), f"{took.processor:.2f}", _above(gap_of(exact)))
        schedule, seconds = timed(partial(run, topology, collective, 1 << 30, Budget()))
        whole = run(topology, collective, 1 << 30, Budget(), "0")
        gap = gap_of(schedule)
        allowed = (1 + EPSILON) / (1 - LOSS) * 1.001
        reached = float(seconds_per_byte(schedule) / seconds_per_byte(exact or whole))
        rate = f"{float(1 / seconds_per_byte(schedule)) / 1e9:.3f}"
        cells = (
            topology.name, kind, rate, _above(gap_of(whole)), len(whole.collective.chunks), _above(gap),
            len(schedule.collective.chunks), *seconds.cells, *peer,
        )  # fmt: skip
        yield Row(cells, "loses more than it may" if reached > allowed else "", (schedule,))


def _above(gap: Fraction | None) -> str:
    return "" if gap is None else f"{100 * float(gap):.2f} %"


TABLE = proven_table(
    "blink",
    "trees by multiplicative weights, few of them, beside exact ones",
    (
        Part(
            f"Above the throughput bound with all trees found, and with few of them (at most {100 * LOSS:g} % of the "
            "rate lost); peer: engine forest",
            (
                ("topology", -18), ("collective", -14), ("GB/s", 8), ("all: gap", 8), ("trees", 5), ("few: gap", 8),
                ("trees", 5), ("s", 6), ("cpu s", 6), ("forest", 6), ("cpu s", 6), ("gap", 8),
            ),
            _rows,
        ),
    ),
)  # fmt: skip
