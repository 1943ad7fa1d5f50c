r"""Table `tori`: all_reduce on tori, engine `auto` beside Swing and Trivance, from 32 B to 128 MiB.

Both pass data over partners at growing distances, one dimension of the torus after another, in parts that begin with
different dimensions, so that all links are in use:

    Swing      one partner a step, at distance 1, 1, 3, 5, 11, .. to alternating sides; log2 n steps
    Trivance   two partners a step, at distance 1, 3, 9, .. to both sides; log3 n steps

Each has a form for latency, in which messages are whole, and one for bandwidth, in which they shrink step by step, and
grow again on the way back. Both are simulated here, message by message, over the links of their shortest routes. Ranks
between the ends of a message forward it at once, without a start-up, though `auto` lets every rank receive before it
forwards; and where the side of a torus is no power of three, Trivance's last step is as short as what is missing then,
and its messages are cut evenly: a little better than any real schedule. Adding costs nothing.

Published (De Sensi et al., Swing, NSDI 2024: up to 3 times the others, 32 B to 128 MiB; Juerss et al., Trivance, arXiv
2602.17254: 5 to 30 % over the state of the art up to 8 MiB, on 3D tori up to 128 MiB): of both only the abstract and
the introduction were read, so their networks' latencies are not known here. A link has 50 GB/s and 1 us.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import prod

import numpy as np

from syntony.base.quantity import size as bytes_in
from syntony.base.wording import bytes_of
from syntony.benchmarks.synthesis.by_auto import by_auto
from syntony.benchmarks.synthesis.table import Row
from syntony.benchmarks.tables import Part, Table
from syntony.synth.model.collective import Collective
from syntony.synth.simulation.flows import Flows, Paths, simulate_flows
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

SHAPES = ((8, 8), (16, 16), (32, 32), (8, 8, 8))
SIZES = (32, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 128 << 20)
BANDWIDTH = "50GB/s"
SECONDS = 20.0
"""Processor seconds of engine auto, for each size, counted as engines/workers.py says."""
ROUNDING = 1e-6
"""Where sums of equal times may differ."""


@dataclass(frozen=True)
class Step:
    """What every rank sends in a step of one part of the data.

    dimension  along which
    hops       of each of its messages: to which side and how far, for ranks at even and at odd coordinates
    share      of the part that each message carries
    """

    dimension: int
    hops: tuple[tuple[int, int], ...]
    share: float


def swing(shape: Sequence[int], *, whole: bool) -> list[list[Step]]:
    """Swing's steps, for each of its parts, on equal sides that are a power of two. `whole`: its form for latency."""
    parts = []
    for first in range(len(shape)):
        for side in (1, -1):
            steps, left = [], 1.0
            for turn in range(sum(length.bit_length() - 1 for length in shape)):
                distance = side * (1 - (-2) ** (turn // len(shape) + 1)) // 3
                left /= 2
                steps.append(Step((first + turn) % len(shape), ((distance, -distance),), 1.0 if whole else left))
            parts.append(steps if whole else steps + steps[::-1])
    return parts


def trivance(shape: Sequence[int], *, whole: bool) -> list[list[Step]]:
    """Trivance's steps, for each of its parts. `whole`: its form for latency."""
    parts = []
    for first in range(len(shape)):
        order = [(first + turn) % len(shape) for turn in range(len(shape))]
        reached, missing, left = [0] * len(shape), list(shape), 1.0
        steps = []
        while any(2 * reached[axis] + 1 < shape[axis] for axis in order):
            for axis in order:
                if 2 * reached[axis] + 1 < shape[axis]:
                    distance = min(2 * reached[axis] + 1, shape[axis] // 2 - reached[axis])
                    reached[axis] += distance
                    kept = -(-missing[axis] // 3)
                    share = left * (missing[axis] - kept) / missing[axis] / 2
                    left, missing[axis] = left * kept / missing[axis], kept
                    hops = ((distance, distance), (-distance, -distance))
                    steps.append(Step(axis, hops, 1.0 if whole else share))
        parts.append(steps if whole else steps + steps[::-1])
    return parts


def seconds_of(parts: list[list[Step]], topology: Topology, shape: Sequence[int], size: int) -> float:
    """Simulated seconds; a rank sends as soon as it has all messages of the step before, in each part by itself."""
    ranks, link_of = prod(shape), {(link.src, link.dst): link.id for link in topology.links}
    places = np.stack(np.unravel_index(np.arange(ranks), shape))
    paths: list[list[list[int]]] = []
    amounts: list[float] = []
    after: list[list[int]] = []
    for steps in parts:
        arrived: list[list[int]] = [[] for _ in range(ranks)]
        for step in steps:
            arriving: list[list[int]] = [[] for _ in range(ranks)]
            for rank in range(ranks):
                place = places[:, rank].copy()
                for hops in step.hops:
                    hop = hops[place[step.dimension] % 2]
                    stops = np.repeat(place[:, None], abs(hop) + 1, axis=1)
                    stops[step.dimension] += np.sign(hop) * np.arange(abs(hop) + 1)
                    stops[step.dimension] %= shape[step.dimension]
                    route = np.ravel_multi_index(tuple(stops), shape).tolist()
                    arriving[route[-1]].append(len(amounts))
                    paths.append([[link_of[ends] for ends in pairwise(route)]])
                    amounts.append(step.share * size / len(parts))
                    after.append(arrived[rank])
            arrived = arriving
    sets = Paths.of(paths)
    alpha = [sum(topology.links[link].alpha for link in route) for route in sets.all_links()]
    capacity = [float(link.bandwidth) for link in topology.links]
    return simulate_flows(Flows.make(sets, capacity, amounts, latency=alpha, after=after)).seconds


def _rows(shapes: Sequence[Sequence[int]], sizes: Sequence[int], budget: float) -> Iterator[Row]:
    for shape in shapes:
        topology = parse(f"torus:{'x'.join(map(str, shape))},bandwidth={BANDWIDTH}")
        collective = Collective.make("all_reduce", topology.ranks)
        peers = [[make(shape, whole=whole) for whole in (True, False)] for make in (swing, trivance)]
        for size in sizes:
            found, took = by_auto(topology, collective, size, budget)
            theirs = [min(seconds_of(parts, topology, shape, size) for parts in forms) for forms in peers]
            assert found.schedule.bounds is not None
            cells = (
                topology.name.partition(",")[0], bytes_of(size), f"{found.seconds * 1e6:.1f}",
                *(f"{seconds * 1e6:.1f}" for seconds in theirs), f"{min(theirs) / found.seconds:.3f}",
                f"{found.seconds / found.schedule.bounds.seconds(size):.2f}", found.engine, f"{took:.1f}",
            )  # fmt: skip
            slower = found.seconds > (1 + ROUNDING) * min(theirs)
            yield Row(cells, "slower than a peer" if slower else "", (found.schedule,))


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--torus", metavar="AxB", help="only this torus")
    parser.add_argument("--size", type=bytes_in, help="only this size")
    parser.add_argument(
        "--budget", type=float, default=SECONDS, metavar="S",
        help=f"processor seconds of engine auto for each size (default: {SECONDS:g})",
    )  # fmt: skip


def _parts(options: argparse.Namespace) -> list[Part]:
    shapes = SHAPES if options.torus is None else (tuple(map(int, options.torus.split("x"))),)
    sizes = SIZES if options.size is None else (options.size,)
    return [
        Part(
            f"all_reduce, us, simulated; x: the faster peer over ours; links of {BANDWIDTH} and 1 us",
            (
                ("torus", -12), ("size", 8), ("auto", 8), ("Swing", 8), ("Trivance", 8), ("x", 6), ("x bound", 7),
                ("engine", -16), ("s", 5),
            ),
            partial(_rows, shapes, sizes, options.budget),
        )
    ]  # fmt: skip


TABLE = Table("tori", "all_reduce on tori, beside Swing and Trivance", _parts, _configure)
