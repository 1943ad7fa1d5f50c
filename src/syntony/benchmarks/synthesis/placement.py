"""Table `placement`: placements of two axes over nodes of GPUs, and the programs by which each sums.

The systems are of the shapes that P2 measured (Xie et al., MLSys'22): two and four nodes of 16 A100 and of 8 V100. Here
they are modelled: GPUs of a node on one switch (270 GB/s and 135 GB/s a GPU), a node on one NIC of 12.5 GB/s; the rates
are ours, not the paper's. The paper's figures, from its abstract, are measured on Google's cloud and across all its
cases: placements up to 448 times apart for an all_reduce; for 69 % of cases a program beats one all_reduce, by 1.27
times on average and 2.04 at most. Ours are simulated: the same kind of result, not the same experiment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from syntony.benchmarks.synthesis.table import Row, Stopwatch, proven_table
from syntony.benchmarks.tables import Part
from syntony.synth.model.collective import Collective
from syntony.synth.placement.matrices import Axis
from syntony.synth.placement.reductions import verified
from syntony.synth.placement.search import Candidate, search
from syntony.synth.symmetry.levels import levels_of
from syntony.topologies.parse import parse

SIZE = 1 << 30
PLACED, BEATEN, MEAN, MOST = "448x", "69 %", "1.27x", "2.04x"
"""The paper's figures."""
WORTH = 1.01
"""Faster by less is no gain."""


@dataclass(frozen=True)
class System:
    """Nodes of GPUs, and the sizes that the first of two axes may have."""

    name: str
    nodes: int
    gpus: int
    bandwidth: str

    @property
    def topology(self) -> str:
        return f"rail:boxes={self.nodes},gpus={self.gpus},rails=1,bandwidth={self.bandwidth},nic_bandwidth=12.5e9"


SYSTEMS = (
    System("2 x 8 V100", 2, 8, "135e9"),
    System("4 x 8 V100", 4, 8, "135e9"),
    System("2 x 16 A100", 2, 16, "270e9"),
    System("4 x 16 A100", 4, 16, "270e9"),
)
MOST_SUMMED = 32
"""Ranks of a group at most: the time of a row."""


def _cases(system: System) -> Iterator[tuple[tuple[Axis, Axis], list[Candidate]]]:
    topology = parse(system.topology)
    levels = levels_of(topology, Collective.make("all_gather", topology.ranks))
    size = 2
    while size < topology.ranks and size <= MOST_SUMMED:
        axes = (Axis("dp", size), Axis("tp", topology.ranks // size))
        yield axes, search(topology, levels, axes, ["dp"], SIZE)
        size *= 2


def _rows() -> Iterator[Row]:
    for system in SYSTEMS:
        watch = Stopwatch()
        cases = list(_cases(system))
        seconds = watch.read()
        candidates = [candidate for _, found in cases for candidate in found]
        for candidate in candidates:
            if not verified(candidate.program, candidate.placement.groups(["dp"]).shape[1:]):
                raise AssertionError(f"{candidate.placement}: its program does not sum")
        apart = max(_ratio(found) for _, found in cases)
        every = [candidate.default for candidate in candidates]
        gains = [candidate.speedup for candidate in candidates if candidate.speedup > WORTH]
        good = all(candidate.speedup >= 1 for candidate in candidates)
        beaten = f"{len(gains)}/{len(candidates)}"
        mean = f"{sum(gains) / len(gains):.2f}x" if gains else "-"
        cells = (
            system.name, len(candidates), sum(candidate.programs for candidate in candidates), f"{apart:.1f}x",
            f"{max(every) / min(every):.1f}x", beaten, mean, f"{max(gains, default=1):.2f}x", *seconds.cells,
        )  # fmt: skip
        yield Row(cells, "" if good and gains else "no program gains")


def _ratio(candidates: Sequence[Candidate]) -> float:
    return max(candidate.default for candidate in candidates) / min(candidate.default for candidate in candidates)


def _closing(rows: Sequence[Row]) -> list[str]:
    return [f"P2, measured, all its cases: placements {PLACED}; programs gain in {BEATEN}, {MEAN} mean, {MOST} most"]


TABLE = proven_table(
    "placement",
    "axes over nodes of GPUs, and programs that sum (P2)",
    (
        Part(
            "1 GB per GPU, simulated; apart: one all_reduce, worst placement against best (of equal axes; of all)",
            (
                ("system", -11), ("placements", 10), ("programs", 8), ("apart", 7), ("of all", 7), ("gain in", 7),
                ("mean", 6), ("most", 6), ("s", 6), ("cpu s", 6),
            ),
            _rows,
            _closing,
        ),
    ),
)  # fmt: skip
