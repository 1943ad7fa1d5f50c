r"""Table `stragglers`: all_reduce where one rank comes late, or has a slower wire than the others.

    late    the others have added up what they have when it comes; it hands in its data and takes the sum
    slow    it sums as much less for the others as balances its wire with theirs

Both are `two_shot` with unequal shares (csrc/core/program/algorithms/direct.hpp; Communicator.set_rates), for p ranks
on a star, S bytes, wires of B bytes/s, of which one has rB. Nobody can take less than

    late    S/B from when it comes: its data must leave, and the sum must come
    slow    max(S / rB, 2 (p-1) S / (p-1+r) B), as S must leave the slow rank, and somebody must send 2 (p-1) S: what
            the linear program of the bounds says, too
    neither 2 (p-1)/p S/B

Published: StragglAR (arXiv 2505.23523) takes p - 2 + log2 p rounds of S/(p-1) where p is a power of two, by the model
in its code, and says 25 % over the best of NCCL's on eight GPUs, measured. OptCC (arXiv 2606.01680) says 2 to 6 % over
NCCL's ring without a fault for r >= 1/2, simulated (for how many ranks, its abstract does not say), where other schemes
that tolerate faults lose up to 57 %. Ours is simulated.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from math import log2

from syntony import _core
from syntony.base.arguments import count
from syntony.benchmarks.tables import Part, Row, Table
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.model.collective import Collective
from syntony.synth.model.program import Program
from syntony.synth.simulation.program_simulator import executor_slice, simulate_program
from syntony.topologies.graph.wiring import ABSTRACT_BANDWIDTH
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

SIZE = 1 << 30
LEAST_SHARE = 8 << 20
"""Bytes per rank where one is slow: a share is cut into 128 messages, and the first and the last count for less."""
UNIT = SIZE / float(ABSTRACT_BANDWIDTH)
"""Seconds of S/B."""
LATE_RANKS = (4, 8, 16, 32, 64)
SLOW_RANKS = (8, 16, 32, 64, 128, 256, 512, 1024)
EVERY_MESSAGE = 64
"""Ranks up to which every message of the ring is simulated."""
SHARES = (50, 60, 75, 90)
"""Percent of its bandwidth."""
SPEEDUP, MOST = 1.2, 1.01
"""Goals: over the usual all_reduce where a rank is late; over the bound where it is slow."""


def shares(ranks: int, last: float) -> list[int]:
    """For ranks of which the last one's wire has `last` of the others' rate; 0: it is late."""
    return _core.shares_for([1.0] * (ranks - 1) + [last])


def unequal(ranks: int, last: float) -> Program:
    """all_reduce with these shares."""
    return _core.build("two_shot", "all_reduce", ranks, shares=shares(ranks, last))


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
            for program in (_core.build("ring", "all_reduce", ranks), unequal(ranks, 0.0))
        )
        cells = (
            f"{ranks}", f"{float(share_of_time(ranks)):.3f}", f"{ring:.3f}", f"{ours:.3f}", "1.000",
            f"{ring / ours:.2f}", f"{stragglar(ranks):.3f}", f"{float(usual(ranks)) / stragglar(ranks):.2f}",
        )  # fmt: skip
        yield Row(cells, f"less than {SPEEDUP} times the ring" if ring < SPEEDUP * ours else "")


def slow_size(ranks: int, last: float) -> int:
    """Bytes of which equal shares are equal to the byte: then ranks are alike, and one of each kind is simulated."""
    least, whole = max(SIZE, ranks * LEAST_SHARE), sum(shares(ranks, last))
    return least + -least % whole


def ring_seconds(program: Program, topology: Topology, size: int) -> float:
    """Simulated seconds of a ring with the CPU executor's slices.

    No two of its ranks are alike. With hundreds these are too many messages, so a share is cut into 4 and into 8, and
    the times are extrapolated: the first and the last slice delay a pipeline by their length.
    """
    if topology.ranks <= EVERY_MESSAGE:
        return simulate_program(program, topology, size).seconds
    share, least = size // topology.ranks, executor_slice(topology.ranks)
    short, long = (simulate_program(program, topology, size, slice_bytes=share // parts).seconds for parts in (8, 4))
    return short - (long - short) / (share // 8) * (share // 8 - least)


def _slow(rank_counts: tuple[int, ...]) -> Iterator[Row]:
    for ranks in rank_counts:
        ring = _core.build("ring", "all_reduce", ranks)
        for percent in SHARES:
            topology, size = slowed(ranks, percent), slow_size(ranks, percent / 100)
            unit = size / float(ABSTRACT_BANDWIDTH)
            bound = bounds_of(topology, Collective.make("all_reduce", ranks)).seconds(size) / unit
            ours = simulate_program(unequal(ranks, percent / 100), topology, size).seconds / unit
            usual_one = ring_seconds(ring, topology, size) / unit
            healthy = float(usual(ranks))
            cells = (
                f"{ranks}", f"{percent} %", f"{bound:.4f}", f"{ours:.4f}", f"{ours / bound:.4f}",
                f"{ours / healthy - 1:+.1%}", f"{usual_one / healthy - 1:+.1%}",
            )  # fmt: skip
            yield Row(cells, f"more than {MOST} times the bound" if ours > MOST * bound else "")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ranks", type=_rank_counts, default=SLOW_RANKS, metavar="N,N,..",
        help="numbers of ranks of which one is slow (default: up to 1,024)",
    )  # fmt: skip


def _rank_counts(text: str) -> tuple[int, ...]:
    return tuple(count(number) for number in text.split(","))


TABLE = Table(
    "stragglers",
    "all_reduce with one rank that is late, or slow",
    lambda options: (
        Part(
            "One rank late; from when it comes, in S/B, simulated at 1 GiB; StragglAR by its model",
            (
                ("ranks", 5), ("late by", 7), ("ring", 6), ("ours", 6), ("bound", 6), ("x ring", 6),
                ("StragglAR", 9), ("x ring", 6),
            ),
            _late,
        ),
        Part(
            "One rank with so much of its bandwidth; in S/B, simulated at 1 GiB or more; over: a ring without a fault",
            (
                ("ranks", 5), ("has", 5), ("bound", 7), ("ours", 7), ("x bound", 7), ("ours over", 9),
                ("ring over", 9),
            ),
            partial(_slow, options.ranks),
        ),
    ),
    _configure,
)  # fmt: skip
