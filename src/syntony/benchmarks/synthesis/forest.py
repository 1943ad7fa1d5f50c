"""Table `forest`: all_gather at the exact throughput bound, and the seconds that packing its trees takes; then what
few trees per root can do.

Peer: ForestColl's own Python (Zhao et al., NSDI'26), measured once on another 2-core machine, whole schedule (two MI250
boxes with one tree per root); the seconds for 1,024 GPUs are a third party's summary of the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from syntony.benchmarks.synthesis.table import Row, Stopwatch, WrongScheduleError, proven_table, timed
from syntony.benchmarks.tables import Part
from syntony.synth.bounds.throughput import throughput
from syntony.synth.checker import check_schedule
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.forest.search import pack, run
from syntony.synth.engines.forest.trees import Trees
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.throughput import gap_of, seconds_per_byte
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

CHECKED = 256
"""Ranks up to which the checker proves the schedule; beyond, trees and loads are recomputed here."""


@dataclass(frozen=True)
class Instance:
    """`goal`: seconds; `peer`: seconds as printed; "" where unknown."""

    topology: str
    goal: float
    peer: str


INSTANCES = (
    Instance("dgx1", 0.5, "0.12"),
    Instance("dgx-a100:1", 0.5, "0.16"),
    Instance("dgx-a100:2", 0.5, "7.43"),
    Instance("dgx-h100:2", 0.5, "3.09"),
    Instance("mi250:1", 3.0, "0.76"),
    Instance("mi250:2", 3.0, "12.6"),
    Instance("torus:4x4", 2.0, "0.89"),
    Instance("mesh:4x4", 2.0, "0.41"),
    Instance("torus:8x8", 2.0, "91.4"),
    Instance("torus:10x10x10", 30.0, ""),
    Instance("dgx-h100:128", 30.0, "2160"),
    Instance("rail:boxes=128,gpus=8,rails=8", 30.0, ""),
)


def _rows() -> Iterator[Row]:
    for instance in INSTANCES:
        topology = parse(instance.topology)
        gather = Collective.make("all_gather", topology.ranks)
        watch = Stopwatch()
        trees = pack(topology, gather)
        seconds = watch.read()
        bound = throughput(Network(topology, gather)).seconds_per_byte
        ran: tuple[Schedule, ...] = ()
        if topology.ranks <= CHECKED:
            schedule = run(topology, gather, 1 << 30, Budget())
            verdict = check_schedule(schedule)
            if not verdict:
                raise WrongScheduleError(f"engine forest on {instance.topology}: {verdict.fault}")
            reached, ran = seconds_per_byte(schedule), (schedule,)
        else:
            reached = busiest_link(topology, trees)
        gap = reached / bound - 1
        depth = int(trees.depths().max()) + 1
        algbw = f"{float(1 / bound) / 1e9:.3f}"
        cells = (instance.topology, topology.ranks, algbw, gap, len(trees.root), depth, *seconds.cells, instance.peer)
        slow = f"more than {instance.goal:g} s" if seconds.processor > instance.goal else ""
        yield Row(cells, "above the bound" if gap else slow, ran)


FIXED = (
    ("dgx-a100:2", {1: "342.857", 13: "346.667"}),
    ("mi250:1", {1: "266.667", 3: "342.857"}),
    ("mi250:2", {1: "320.000"}),
    ("dgx-h100:2", {2: "533.333"}),
)
"""Curves, and the points on them that ForestColl's own Python printed, GB/s."""
CURVE = (1, 2, 3, 4, 6, 13)
"""Trees per root."""


def _fixed_rows() -> Iterator[Row]:
    for name, published in FIXED:
        topology = parse(name)
        gather = Collective.make("all_gather", topology.ranks)
        for trees in CURVE:
            schedule, seconds = timed(partial(run, topology, gather, 1 << 30, Budget(), str(trees)))
            reached = f"{float(1 / seconds_per_byte(schedule)) / 1e9:.3f}"
            peer = published.get(trees, "")
            missed = "below what is published" if peer and float(reached) < float(peer) else ""
            cells = (name, trees, reached, gap_of(schedule), *seconds.cells, peer)
            yield Row(cells, missed, (schedule,))


def busiest_link(topology: Topology, trees: Trees) -> Fraction:
    """Its seconds per byte, recomputed from the trees; WrongScheduleError where one does not span or routes break."""
    ranks = topology.ranks
    members = np.sort(np.concatenate((trees.root[:, None], trees.dst), axis=1), axis=1)
    if not (members == np.arange(ranks)).all():
        raise WrongScheduleError("a tree does not reach every rank once")
    reached = np.zeros((len(trees.root), ranks), bool)
    every = np.arange(len(trees.root))
    reached[every, trees.root] = True
    for edge in range(ranks - 1):
        if not reached[every, trees.src[:, edge]].all():
            raise WrongScheduleError("a tree sends what its sender does not hold")
        reached[every, trees.dst[:, edge]] = True
    hops = np.diff(trees.offset)
    used = np.bincount(trees.route.reshape(-1), np.repeat(trees.weight, ranks - 1), minlength=len(hops)).astype(
        np.int64
    )
    ends = np.stack([np.asarray([link.src, link.dst]) for link in topology.links])
    first, last = ends[trees.link[trees.offset[:-1]], 0], ends[trees.link[trees.offset[1:] - 1], 1]
    if not ((first[trees.route] == trees.src) & (last[trees.route] == trees.dst)).all():
        raise WrongScheduleError("a route does not lead from its sender to its receiver")
    inner = np.flatnonzero(np.diff(np.repeat(np.arange(len(hops)), hops)) == 0)
    if (ends[trees.link[inner], 1] != ends[trees.link[inner + 1], 0]).any():
        raise WrongScheduleError("a route is broken")
    load = np.zeros(len(topology.links), np.int64)
    np.add.at(load, trees.link, np.repeat(used, hops))
    busiest = max(Fraction(int(bytes_)) / link.bandwidth for bytes_, link in zip(load, topology.links, strict=True))
    return busiest / int(trees.weight.sum())


TABLE = proven_table(
    "forest",
    "all_gather at the exact throughput bound, by packing trees",
    (
        Part(
            "Spanning trees at the exact bound; peer: ForestColl's Python on another 2-core machine",
            (
                ("topology", -30), ("ranks", 5), ("GB/s", 9), ("gap", 4), ("trees", 6), ("depth", 5),
                ("s", 6), ("cpu s", 6), ("peer s", 7),
            ),
            _rows,
        ),
        Part(
            "Rate against trees per root, equal ones; peer: ForestColl's Python with k fixed",
            (("topology", -12), ("trees", 5), ("GB/s", 9), ("gap", 6), ("s", 6), ("cpu s", 6), ("peer GB/s", 9)),
            _fixed_rows,
        ),
    ),
)  # fmt: skip
