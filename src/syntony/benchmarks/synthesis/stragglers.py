r"""Table `stragglers`: all_reduce where one rank comes late, or has a slower wire than the others.

    late    the others have reduce-scattered among themselves when it comes; it hands in its data and takes the sum
    slow    it is relieved of all work for others, or of as much as balances its wire with theirs

Both are `hierarchical` with the odd rank as a level of its own (Communicator.set_levels), for `ranks` on a star of wires
of one rate B, S bytes:

    late    S/B from when it comes: its data must leave, and the sum must come. The usual all_reduce: 2 (p-1)/p S/B
    slow    wires of rB for one: max(S / rB, 2 (p-1) S / (p-1+r) B), as 2 (p-1) S bytes must be sent by somebody and S by
            the slow rank; the same comes out of the linear program of the bounds. Without a fault 2 (p-1)/p S/B

With few ranks, mixing that with the usual exchange counts: there engine `forest` finds the mix, in seconds. Published:
StragglAR (arXiv 2505.23523) has (p - 2 + log2 p) rounds of S/(p-1) for powers of two, from the model in its code, and
25 % over the best of NCCL's on eight GPUs, measured. OptCC (arXiv 2606.01680) is within 2 to 6 % of NCCL's ring without
a fault for r >= 0.5, simulated for large p, where other fault-tolerant schemes lose up to 57 %. Ours is simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import log2

from syntony import _core
from syntony.benchmarks.synthesis.table import Row, timed
from syntony.benchmarks.tables import Part, Table
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.forest.search import run as forest
from syntony.synth.engines.workers import seconds_at
from syntony.synth.model.collective import Collective
from syntony.synth.model.program import Program
from syntony.synth.simulation.program_simulator import simulate_program
from syntony.topologies.graph.wiring import ABSTRACT_BANDWIDTH
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

SIZE = 1 << 30
UNIT = SIZE / float(ABSTRACT_BANDWIDTH)
"""Seconds of S/B."""
LATE_RANKS = (4, 8, 16, 32, 64)
FEW, MANY = (8, 16, 32), (64, 128, 256)
"""Ranks of which one is slow: those for engine `forest`, and those for the builder."""
SHARES = (50, 75, 90)
"""Percent of its bandwidth."""
SPEEDUP, MOST = 1.2, 1.01
"""Goals: over the usual all_reduce where a rank is late; over the bound where it is slow."""


def apart(ranks: int) -> Program:
    """all_reduce with the last rank as a level of its own."""
    return _core.build("hierarchical", "all_reduce", ranks, 0, [list(range(ranks - 1)), [ranks - 1]])


def share_of_time(ranks: int) -> Fraction:
    """Of S/B: how late a rank is if the others have just reduce-scattered among themselves."""
    return Fraction(ranks - 2, ranks - 1)


def slowed(ranks: int, percent: int) -> Topology:
    """A star whose last rank has so much of its bandwidth."""
    return parse(f"star:{ranks},slowed=rank{ranks - 1}-switch@{percent}%")


def usual(ranks: int) -> Fraction:
    """Of S/B: an all_reduce that nobody comes late to, with equal wires, whatever the algorithm."""
    return Fraction(2 * (ranks - 1), ranks)


def stragglar(ranks: int) -> float:
    """Of S/B: StragglAR from when the late rank comes, by the model in its code, for powers of two."""
    return (ranks - 2 + log2(ranks)) / (ranks - 1)


def _late() -> Iterator[Row]:
    for ranks in LATE_RANKS:
        topology, late = parse(f"star:{ranks}"), UNIT * float(share_of_time(ranks))
        ring, ours = (
            (simulate_program(program, topology, SIZE, late={ranks - 1: late}).seconds - late) / UNIT
            for program in (_core.build("ring", "all_reduce", ranks), apart(ranks))
        )
        cells = (
            f"{ranks}", f"{float(share_of_time(ranks)):.3f}", f"{ring:.3f}", f"{ours:.3f}", "1.000",
            f"{ring / ours:.2f}", f"{stragglar(ranks):.3f}", f"{float(usual(ranks)) / stragglar(ranks):.2f}",
        )  # fmt: skip
        yield Row(cells, f"less than {SPEEDUP} times the ring" if ring < SPEEDUP * ours else "")


def _slow() -> Iterator[Row]:
    for ranks in FEW + MANY:
        for percent in SHARES:
            topology = slowed(ranks, percent)
            collective = Collective.make("all_reduce", ranks)
            bound = bounds_of(topology, collective).seconds(SIZE) / UNIT
            if ranks in FEW:
                schedule, _ = timed(lambda t=topology, c=collective: forest(t, c, SIZE, Budget(60.0)))  # type: ignore[misc]
                found, how = seconds_at(schedule, SIZE) / UNIT, "forest"
            else:
                found, how = simulate_program(apart(ranks), topology, SIZE).seconds / UNIT, "level"
            ring = simulate_program(_core.build("ring", "all_reduce", ranks), topology, SIZE).seconds / UNIT
            healthy = float(usual(ranks))
            cells = (
                f"{ranks}", f"{percent} %", how, f"{bound:.4f}", f"{found:.4f}", f"{found / bound:.4f}",
                f"{found / healthy - 1:+.1%}", f"{ring / healthy - 1:+.1%}",
            )  # fmt: skip
            yield Row(cells, f"more than {MOST} times the bound" if found > MOST * bound else "")


TABLE = Table(
    "stragglers",
    "all_reduce with one rank that is late, or slow",
    lambda _: (
        Part(
            "One rank late; from when it comes, in S/B, simulated at 1 GiB; StragglAR by its model",
            (
                ("ranks", 5), ("late by", 7), ("ring", 6), ("ours", 6), ("bound", 6), ("x ring", 6),
                ("StragglAR", 9), ("x ring", 6),
            ),
            _late,
        ),
        Part(
            "One rank with so much of its bandwidth; in S/B, simulated at 1 GiB; over: a ring without a fault",
            (
                ("ranks", 5), ("has", 5), ("by", -6), ("bound", 7), ("ours", 7), ("x bound", 7), ("ours over", 9),
                ("ring over", 9),
            ),
            _slow,
        ),
    ),
)  # fmt: skip
