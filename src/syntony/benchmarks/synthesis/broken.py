"""Table `broken`: machines of about 1,000 GPUs of which some wires are lost or slow, as large machines always are.

Of all cables, 1 % are drawn (the seed is printed): every other one is lost, the rest have half of their bandwidth. A
cable whose loss would cut a node off is only slowed. The last machine has hosts that differ: one is short of a NIC, one
of a GPU. No declared symmetry is left. `gap` is to the throughput bound, proven; `mended`: one more cable is lost, and
the schedule is mended (engines/repair.py) instead of made anew. Seconds are of the processor; nobody publishes such a
table, so there is no peer.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from syntony.benchmarks.synthesis.table import Row, Stopwatch
from syntony.benchmarks.tables import Part, Table
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.flow import search as flow
from syntony.synth.engines.forest import search as forest
from syntony.synth.engines.repair import repair
from syntony.synth.model.collective import Collective
from syntony.synth.symmetry.throughput import gap_of
from syntony.topologies.graph.degraded import degraded
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

PART = 100
"""One of so many cables is lost or slow."""
LEFT = "50%"
"""Of a slow cable's bandwidth."""
MOST_SECONDS, MOST_GAP, MOST_MENDING = 120.0, 0.03, 5.0
"""Goals."""
KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")


@dataclass(frozen=True)
class Machine:
    """`drawn`: whether cables are drawn; `lost`: nodes that are missing beside."""

    topology: str
    drawn: bool = True
    lost: tuple[str, ...] = ()


MACHINES = (
    Machine("torus:32x32"),
    Machine("rail:boxes=128,gpus=8,rails=8"),
    Machine("dgx-h100:128"),
    Machine("fat-tree:16"),
    Machine("rail:boxes=128,gpus=8,rails=8", False, ("nic0.0", "rank77")),
)


def damage(topology: Topology, rng: random.Random) -> tuple[list[str], list[str]]:
    """Cables to be lost, and cables to be slowed with what is left of them, as `degraded` takes them."""
    cables = sorted({(min(link.src, link.dst), max(link.src, link.dst)) for link in topology.links})
    degree = Counter(node for cable in cables for node in cable)
    lost, slowed = [], []
    for number, (one, other) in enumerate(rng.sample(cables, max(2, len(cables) // PART))):
        name = f"{topology.nodes[one].name}-{topology.nodes[other].name}"
        if number % 2 == 0 and min(degree[one], degree[other]) > 1:
            degree.subtract((one, other))
            lost.append(name)
        else:
            slowed.append(f"{name}@{LEFT}")
    return lost, slowed


def _rows(machines: Sequence[Machine], kinds: Sequence[str], seed: int) -> Iterator[Row]:
    import scipy.optimize
    import scipy.sparse.csgraph  # noqa: F401  these imports are not what is measured

    for machine in machines:
        rng, whole = random.Random(seed), parse(machine.topology)
        lost, slowed = damage(whole, rng) if machine.drawn else ([], [])
        wires = degraded(whole, [*machine.lost, *lost], slowed).topology
        (more, *_), _ = damage(wires, rng)
        for kind in kinds:
            watch = Stopwatch()
            engine = flow if kind == "all_to_all" else forest
            schedule = engine.run(wires, Collective.make(kind, wires.ranks), 1 << 30, Budget(MOST_SECONDS))
            seconds = watch.stop(schedule)
            watch = Stopwatch()
            mended = repair(schedule, [more], [], Budget(MOST_SECONDS))
            mending = watch.stop(mended)
            gaps = [gap_of(schedule), gap_of(mended)]
            told = [f"{float(gap):.2%}" if gap is not None else "?" for gap in gaps]
            cells = (
                machine.topology, len(lost) + len(machine.lost), len(slowed), kind, told[0], *seconds.cells,
                told[1], *mending.cells,
            )  # fmt: skip
            missed = [
                f"more than {most:g} {what}"
                for value, most, what in (
                    (seconds.processor, MOST_SECONDS, "s"),
                    (100 * float(gaps[0] or 0), 100 * MOST_GAP, "% above the bound"),
                    (mending.processor, MOST_MENDING, "s of mending"),
                )
                if value > most
            ]
            yield Row(cells, ", ".join(missed), (schedule, mended))


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=1, help="of the cables that are drawn (default: 1)")
    parser.add_argument("--machine", type=int, metavar="N", help="only the N-th machine, from 0 on")
    parser.add_argument("--kind", choices=KINDS, help="only this collective")


def _parts(options: argparse.Namespace) -> list[Part]:
    machines = MACHINES if options.machine is None else MACHINES[options.machine : options.machine + 1]
    kinds = KINDS if options.kind is None else (options.kind,)
    return [
        Part(
            f"1 % of cables lost or at {LEFT} (seed {options.seed}); then one more is lost, and the schedule mended",
            (
                ("topology", -30), ("lost", 4), ("slow", 4), ("collective", -14), ("gap", 6), ("s", 6), ("cpu s", 6),
                ("mended", 6), ("s", 6), ("cpu s", 6),
            ),
            partial(_rows, machines, kinds, options.seed),
        )
    ]  # fmt: skip


TABLE = Table("broken", "large machines with wires lost or slow", _parts, _configure)
