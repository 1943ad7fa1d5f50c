"""Table `r2ccl`: collectives of H100 servers of which one has lost a network card, beside R2CCL.

Servers of 8 GPUs with a card of 400 Gb/s each, on 8 rails, as in the paper's testbed of two servers. `kept` is the
throughput over that of the fault-free optimum, both exact:

    most      what no schedule for the network without the card can exceed (by the bounds)
    mended    the fault-free schedule, mended for it (engines/repair.py), and how long that takes
    anew      a schedule made for it (engines forest, flow)
    moved     the bytes of the lost card go over one other card, which then carries as much as two: 1/2
    balanced  they are spread evenly over the 7 others, the algorithm stays: 7/8

The last two are R2CCL's first measures, hot repair and Balance, by their definition (Wang et al., arXiv 2512.25059).
Published: less than 1 % of training time is lost, and 3 % of inference (abstract). Of the paper only its abstract could
be read; what it keeps for each collective stands in figures, and how it divides an all_reduce between healthy and
degraded servers in a section that could not be had. So that is not simulated; no schedule exceeds `most`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from syntony.benchmarks.synthesis.table import Row, Stopwatch, proven_table, timed
from syntony.benchmarks.tables import Part
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.flow import search as flow
from syntony.synth.engines.forest import search as forest
from syntony.synth.engines.repair import repair
from syntony.synth.model.collective import Collective
from syntony.synth.symmetry.throughput import seconds_per_byte
from syntony.topologies.graph.degraded import degraded
from syntony.topologies.parse import parse

SERVERS = (2, 4, 16)
CARDS = 8
LOST = "nic0.0"
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
SIZE = 1 << 30
MOST_SECONDS = 60.0
LEAST = 0.98
"""Goal: of `most`."""


def _rows(counts: Sequence[int], kinds: Sequence[str]) -> Iterator[Row]:
    for servers in counts:
        whole = parse(f"rail:boxes={servers},gpus={CARDS},rails={CARDS}")
        without = degraded(whole, [LOST], []).topology
        for kind in kinds:
            engine = flow if kind == "all_to_all" else forest
            collective = Collective.make(kind, whole.ranks)
            free = bounds_of(whole, collective).throughput.seconds_per_byte
            most = float(free / bounds_of(without, collective).throughput.seconds_per_byte)
            before, _ = timed(partial(engine.run, whole, collective, SIZE, Budget(MOST_SECONDS)))
            watch = Stopwatch()
            mended = repair(before, [LOST], [], Budget(MOST_SECONDS))
            mending = watch.stop(mended)
            anew, took = timed(partial(engine.run, without, collective, SIZE, Budget(MOST_SECONDS)))
            kept = [float(free / seconds_per_byte(schedule)) for schedule in (mended, anew)]
            cells = (
                f"{servers} x {CARDS}", kind, f"{most:.3f}", f"{kept[0]:.3f}", f"{mending.processor:.2f}",
                f"{kept[1]:.3f}", f"{took.processor:.2f}", f"{1 / 2:.3f}", f"{1 - 1 / CARDS:.3f}",
            )  # fmt: skip
            missed = "" if max(kept) >= LEAST * most else f"less than {LEAST:.0%} of the most"
            yield Row(cells, missed, (mended, anew))


TABLE = proven_table(
    "r2ccl",
    "collectives of servers of which one has lost a network card",
    (
        Part(
            "H100 servers on rails, one card lost; kept: of the fault-free optimum's throughput",
            (
                ("servers", -7), ("collective", -14), ("most", 5), ("mended", 6), ("cpu s", 6), ("anew", 5),
                ("cpu s", 6), ("moved", 5), ("balanced", 8),
            ),
            partial(_rows, SERVERS, KINDS),
        ),
    ),
)  # fmt: skip
