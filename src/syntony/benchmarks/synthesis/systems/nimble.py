"""Table `nimble`: skewed all_to_all_v over several paths at once, beside one path per pair.

        gpu ──── gpu                      150 GB/s per direction: four H100, each joined to the three others
        gpu ──── nic ──── network         PCIe 5.0 x16, then 400 Gb/s; all NICs are on one network switch

A block may go by other GPUs of its node, and by their NICs. Two engines plan that: `flow` divides blocks over paths by
a linear program, `fast` box by box; the table takes the plan that is faster in simulation.

Peer, as published (Yao et al., NIMBLE, arXiv 2604.00317; only the abstract could be read): up to 2.3 times the
bandwidth of a single path inside a node, up to 3.8 times between nodes, up to 5.2 times NCCL and MPI on skewed
all_to_all_v, and as fast as they are where the traffic is balanced. Theirs is measured. Ours is simulated, and its
baseline is one shortest path per pair without any other cost of a library.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from syntony.benchmarks.synthesis.systems.fast import tokens
from syntony.benchmarks.synthesis.table import Row, Seconds, proven_table, timed
from syntony.benchmarks.tables import Part
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.fast import search as fast
from syntony.synth.engines.flow import search as flow
from syntony.synth.engines.workers import seconds_at
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.messages import Messages
from syntony.synth.traffic.run import run as simulate
from syntony.topologies.families.boxes.rates import NETWORK_ALPHA, NVLINK_ALPHA, PCIE5_BANDWIDTH, PCIE_ALPHA
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.topology import Topology

GPUS = 4
NVLINK = Fraction(150 * 10**9)
PORT = Fraction(50 * 10**9)
SIZE = 256 << 20
GRAIN = 100_000
"""Weight of the largest block; the smallest is 1."""
BALANCED_LOSS = 1.01

Matrix = NDArray[np.float64]


def cluster(nodes: int) -> Topology:
    """Nodes of four H100, each GPU with a NIC."""
    wiring = Wiring(f"{nodes} nodes of 4 H100")
    gpus = [wiring.rank((float(n), 0.0)) for n in range(GPUS * nodes)]
    nics = [wiring.nic(f"nic{n}", (float(n), -1.0)) for n in range(GPUS * nodes)]
    network = wiring.switch("network", ((GPUS * nodes - 1) / 2, -2.0))
    for n, (gpu, nic) in enumerate(zip(gpus, nics, strict=True)):
        for peer in gpus[n + 1 : (n // GPUS + 1) * GPUS]:
            wiring.cable(gpu, peer, NVLINK, NVLINK_ALPHA)
        wiring.cable(gpu, nic, PCIE5_BANDWIDTH, PCIE_ALPHA)
        wiring.cable(nic, network, PORT, NETWORK_ALPHA)
    return wiring.topology()


def pair(ranks: int, dst: int) -> Matrix:
    """Rank 0 sends to one other rank, and nobody else sends."""
    matrix = np.zeros((ranks, ranks))
    matrix[0, dst] = 1
    return matrix


def hot(ranks: int, part: float) -> Matrix:
    """Every rank sends as much as the others; rank 0 gets `part` of it, the other ranks the rest in equal parts."""
    matrix = np.full((ranks, ranks), (1 - part) / (ranks - 2))
    matrix[:, 0] = part
    matrix[0] = 1 / (ranks - 1)
    np.fill_diagonal(matrix, 0)
    return matrix


def collective(matrix: Matrix) -> Collective:
    """all_to_all with blocks in proportion to the matrix; every block has at least one byte in GRAIN."""
    sizes = np.maximum(1, np.rint(matrix * (GRAIN / matrix.max()))).astype(np.int64)
    return Collective.make("all_to_all", len(matrix), block_sizes=sizes.reshape(-1).tolist())


def planned(topology: Topology, demand: Collective) -> tuple[Schedule, Seconds]:
    """The schedule that is faster at SIZE, of engines flow and fast; the seconds are those of both."""
    plans = [timed(partial(run, topology, demand, SIZE, Budget())) for run in (flow.run, fast.run)]
    took = Seconds(sum(each.wall for _, each in plans), sum(each.processor for _, each in plans))
    return min((schedule for schedule, _ in plans), key=lambda schedule: seconds_at(schedule, SIZE)), took


def single_path(topology: Topology, demand: Collective) -> float:
    """Simulated seconds of all blocks at once, each on the shortest path of its pair."""
    ranks = topology.ranks
    src, dst = np.nonzero(~np.eye(ranks, dtype=bool))
    size = demand.bytes_of_chunks(SIZE).reshape(ranks, ranks)[src, dst]
    job = Job("all_to_all_v", tuple(range(ranks)), Messages.make(ranks, src, dst, size))
    return simulate(topology, [job], Choice.parse("single")).seconds


@dataclass(frozen=True)
class Case:
    """`published`: the gain as printed; `goal`: the least gain; 0: the published one is of other things."""

    nodes: int
    name: str
    matrix: Matrix
    published: str = ""
    goal: float = 0.0


CASES = (
    Case(2, "one pair in a node", pair(8, 1), "up to 2.3", 2.3),
    Case(2, "one pair of two nodes", pair(8, 4), "up to 3.8", 3.8),
    Case(2, "balanced", 1 - np.eye(8), "1", 1 / BALANCED_LOSS),
    *(Case(nodes, f"{part:.0%} to rank 0", hot(GPUS * nodes, part), "up to 5.2")
      for nodes in (2, 4) for part in (0.3, 0.5, 0.7, 0.9)),
    Case(4, "Zipf 1.5", tokens(16).astype(np.float64), "up to 5.2"),
)  # fmt: skip


def _rows() -> Iterator[Row]:
    import scipy.optimize  # noqa: F401  its import is not what is measured

    for case in CASES:
        topology = cluster(case.nodes)
        demand = collective(case.matrix)
        schedule, took = planned(topology, demand)
        assert schedule.bounds is not None
        single = single_path(topology, demand)
        most = single / float(schedule.bounds.throughput.seconds_per_byte * SIZE)
        gain = single / seconds_at(schedule, SIZE)
        cells = (
            topology.ranks, case.name, f"{most:.2f}", f"{gain:.2f}", case.published, schedule.engine,
            f"{took.processor * 1e3:.0f}",
        )  # fmt: skip
        yield Row(cells, f"a gain below {case.goal:.2f}" if gain < case.goal else "", (schedule,))


TABLE = proven_table(
    "nimble",
    "skewed all_to_all_v over several paths",
    (
        Part(
            "Times as fast as one path per pair: what links allow (exact); 256 MiB, simulated; NIMBLE, as published",
            (
                ("GPUs", 4), ("traffic", -21), ("most", 5), ("gain", 5), ("NIMBLE", -9), ("engine", -6), ("cpu ms", 6),
            ),
            _rows,
        ),
    ),
)  # fmt: skip
