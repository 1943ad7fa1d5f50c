"""Table `fast`: all_to_all_v among boxes, planned online, on skewed matrices.

Ranks have Zipf-distributed tokens for one another, as experts do. A plan is checked (every byte once, every stage a
permutation) before its time is printed. The bound is exact: what the busiest box or rank has to send or get, over its
links. Simulated: the plan, and all pairs at once (on the switches' equal-cost paths evenly).

The peer's time, 221 us for 64 GPUs, is FAST's as we have it at second hand (Lei et al., NSDI'26), on its machine.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from syntony.benchmarks.synthesis.table import Row, Seconds, Stopwatch, proven_table
from syntony.benchmarks.tables import Part
from syntony.synth.engines.fast.stage_plan import StagePlan, bound_seconds, check, messages_of, stage_plan
from syntony.synth.model.collective import Collective
from syntony.synth.symmetry.levels import levels_of
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.messages import Messages
from syntony.synth.traffic.run import run
from syntony.topologies.hosts import hosts_of
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

BOXES = (2, 4, 8, 16, 32, 64)
PEER = {64: "221"}
SIMULATED = 128
"""Ranks up to which plans are simulated."""
REPEATS = 5
TOKEN = 7168 * 2
"""Bytes of a token: 7,168 numbers of 16 bits."""
GOAL = {64: 1e-3}
"""Seconds of processor time to plan for so many ranks."""
NEAR = 1.10
"""Goal: a plan for ENOUGH boxes or more takes at most this many times as long as its bound, simulated."""
ENOUGH = 4
"""Boxes from which on NEAR is the goal. Two exchange all that they have at once: no other stage hides the rest."""


def tokens(ranks: int, seed: int = 2026) -> NDArray[np.int64]:
    """[source, destination]: tokens by Zipf's law with exponent 1.5, at most 10,000 between two ranks."""
    found = np.random.default_rng(seed).zipf(1.5, size=(ranks, ranks)).clip(max=10_000)
    np.fill_diagonal(found, 0)
    return found.astype(np.int64)


def _planned(topology: Topology, matrix: NDArray[np.int64]) -> tuple[StagePlan, Seconds]:
    """The plan, checked, and the least time of several."""
    boxes = levels_of(topology, Collective.make("all_to_all", topology.ranks)).joined()
    times = []
    for _ in range(REPEATS):
        watch = Stopwatch()
        found = stage_plan(boxes, matrix)
        times.append(watch.read())
    check(found, matrix)
    return found, min(times, key=lambda seconds: seconds.processor)


def _simulated(topology: Topology, messages: Messages) -> float:
    job = Job("all_to_all_v", tuple(range(topology.ranks)), messages)
    return run(topology, [job], Choice.parse("spray")).seconds


def _rows() -> Iterator[Row]:
    for boxes in BOXES:
        topology = parse(f"dgx-h100:{boxes}")
        ranks = topology.ranks
        matrix = TOKEN * tokens(ranks)
        found, seconds = _planned(topology, matrix)
        bound = float(bound_seconds(topology, hosts_of(topology), matrix))
        planned = direct = ""
        missed = f"more than {GOAL[ranks] * 1e6:g} us" if seconds.processor > GOAL.get(ranks, np.inf) else ""
        if ranks <= SIMULATED:
            src, dst = np.nonzero(matrix)
            ours = _simulated(topology, messages_of(found))
            theirs = _simulated(topology, Messages.make(ranks, src, dst, matrix[src, dst]))
            planned, direct = f"{bound / ours:.1%}", f"{bound / theirs:.1%}"
            missed = missed or (
                f"more than {NEAR:g} times the bound" if boxes >= ENOUGH and ours > NEAR * bound else ""
            )
        cells = (
            ranks, f"{matrix.sum() / 1e9:.3f}", len(found.length), len(found.stage),
            f"{seconds.wall * 1e6:.0f}", f"{seconds.processor * 1e6:.0f}", PEER.get(ranks, ""),
            f"{bound * 1e6:.1f}", planned, direct,
        )  # fmt: skip
        yield Row(cells, missed)


TABLE = proven_table(
    "fast",
    "all_to_all_v among boxes, planned online",
    (
        Part(
            "DGX H100, Zipf 1.5; simulated, of the exact bound: ours by plan, and all pairs at once",
            (
                ("ranks", 5), ("GB", 7), ("stages", 6), ("pieces", 7), ("us", 6), ("cpu us", 6), ("peer us", 7),
                ("bound us", 8), ("plan", 7), ("direct", 7),
            ),
            _rows,
        ),
    ),
)  # fmt: skip
