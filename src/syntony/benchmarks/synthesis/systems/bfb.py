"""Table `bfb`: all_gather in the fewest steps, breadth first, beside what "Efficient Direct-Connect Topologies for
Collective Communications" (Zhao et al., NSDI'25) prints.

T_L is steps, T_B the time of all steps as barriers in units of M/B: M the collective's size, B what all links of a rank
carry together. No schedule is below 1 - 1/N. Up to 128 ranks the whole schedule goes through the checker; above, what
every link carries in every step is counted exactly from representatives ("by load").

Published, at second hand: a hypercube of 1,024 and a torus of 2,500 ranks in about a minute each; L2(K4,4), of 128
ranks and degree 4, T_L = 4 alpha and T_B = 1.031 M/B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from syntony.benchmarks.synthesis.table import Row, Stopwatch, proven_table
from syntony.benchmarks.tables import Part
from syntony.synth.engines.bfb.search import run
from syntony.synth.engines.engine import Budget
from syntony.synth.model.collective import Collective
from syntony.synth.symmetry.throughput import seconds_per_byte
from syntony.topologies.parse import parse
from syntony.topologies.topology import Link, Node, Topology

CHECKED = 128
"""Ranks up to which the checker proves the schedule."""
RATE = Fraction(10**9)


def generalized_kautz(degree: int, ranks: int) -> Topology:
    """x -> -degree * x - a (mod ranks), a = 1..degree (Imase and Itoh, 1981), without links from a rank to itself."""
    ends = [(x, (-degree * x - a) % ranks) for x in range(ranks) for a in range(1, degree + 1)]
    return _wired(f"gen-kautz:{degree},{ranks}", ranks, [(x, y) for x, y in ends if x != y])


def circulant(ranks: int, *strides: int) -> Topology:
    """Rank x has cables to x + s and x - s, for every stride s; turning it is its symmetry."""
    ends = [(x, (x + way * stride) % ranks) for x in range(ranks) for stride in strides for way in (1, -1)]
    turn = tuple((x + 1) % ranks for x in range(ranks))
    return _wired(f"circulant:{ranks},{'+'.join(map(str, strides))}", ranks, ends, (turn,))


def line_graph(ends: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of a directed graph: its links are the ranks, each linked to those that begin where it ends."""
    return [(i, j) for i, (_, head) in enumerate(ends) for j, (tail, _) in enumerate(ends) if head == tail]


def twice_lined_bipartite() -> Topology:
    """L2(K4,4): the line graph of the line graph of the complete bipartite graph on 4 + 4."""
    complete = [ends for a in range(4) for b in range(4, 8) for ends in ((a, b), (b, a))]
    once = line_graph(complete)
    return _wired("L2(K4,4)", len(once), line_graph(once))


def _wired(
    name: str, ranks: int, ends: list[tuple[int, int]], generators: tuple[tuple[int, ...], ...] = ()
) -> Topology:
    nodes = tuple(Node(rank, "rank", f"rank{rank}") for rank in range(ranks))
    links = tuple(Link(number, src, dst, 1e-6, RATE) for number, (src, dst) in enumerate(ends))
    return Topology(name, nodes, links, generators)


@dataclass(frozen=True)
class Instance:
    """`steps` and `time` (T_B in M/B) as published, `seconds` likewise; empty where nothing is."""

    topology: Callable[[], Topology]
    steps: str = ""
    time: str = ""
    seconds: str = ""


INSTANCES = (
    Instance(twice_lined_bipartite, "4", "1.031"),
    Instance(lambda: circulant(64, 5, 6)),
    Instance(lambda: parse("torus:8x8")),
    Instance(lambda: generalized_kautz(4, 64)),
    Instance(lambda: generalized_kautz(4, 125)),
    Instance(lambda: generalized_kautz(4, 1000)),
    Instance(lambda: parse("hypercube:10"), seconds="60"),
    Instance(lambda: parse("torus:50x50"), seconds="60"),
)


def _rows() -> Iterator[Row]:
    import scipy.optimize  # noqa: F401  its import is not what is measured

    for instance in INSTANCES:
        topology = instance.topology()
        ranks, first = topology.ranks, topology.links_from(0)
        degree = max(len(topology.links_from(rank)) for rank in range(ranks))
        watch = Stopwatch()
        schedule = run(topology, Collective.make("all_gather", ranks), 1 << 30, Budget(600.0))
        checked = ranks <= CHECKED
        seconds = watch.stop(schedule) if checked else watch.read()
        time = float(seconds_per_byte(schedule) * first[0].bandwidth * degree)
        proven = "checked" if checked else "by load"
        cells = (topology.name, ranks, degree, schedule.steps, f"{time:.3f}", f"{1 - 1 / ranks:.3f}", proven)
        missed = [
            f"more {what} than published"
            for what, ours, theirs in (
                ("steps", schedule.steps, instance.steps),
                ("time", round(time, 3), instance.time),
            )
            if theirs and ours > float(theirs)
        ]
        slow = [] if not instance.seconds or seconds.processor <= float(instance.seconds) else ["slower than published"]
        published = (instance.steps, instance.time, instance.seconds)
        yield Row((*cells, len(schedule.transfers), *seconds.cells, *published), "; ".join(missed + slow), (schedule,))


TABLE = proven_table(
    "bfb",
    "all_gather in the fewest steps, breadth first",
    (
        Part(
            "Steps T_L and time T_B in M/B, steps as barriers; listed: of representatives; last: as published",
            (
                ("topology", -22), ("ranks", 5), ("degree", 6), ("T_L", 3), ("T_B", 5), ("least", 5), ("proven", -7),
                ("listed", 7), ("s", 6), ("cpu s", 6), ("T_L", 3), ("T_B", 5), ("s", 4),
            ),
            _rows,
        ),
    ),
)  # fmt: skip
