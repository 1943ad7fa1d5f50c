"""Table `decode`: what tensor-parallel decoding asks of a network: many small all_reduces, one after another.

A layer of a transformer sums twice per token (after attention and after the MLP), so a model of 48 layers makes 96
all_reduces of (batch x hidden) elements for every token: 10 to 64 KiB. Nothing else can run meanwhile; what they take
together is time that every token waits.

Ranks are those of emulated hosts (`syntony lab`, as root), whose cores they share: figures compare algorithms and gloo
with each other, in one run; they are not those of a cluster. Every result is checked.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from syntony.benchmarks.bench.session import create_communicator
from syntony.benchmarks.runtime.hosts import Network, measure
from syntony.benchmarks.runtime.measured import sweep
from syntony.benchmarks.runtime.measured.hosts_rank import GLOO, Job, Timed, timings
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import Exchange

REDUCTIONS = 96
"""Of a token."""

SIZES = (10 << 10, 20 << 10, 64 << 10)
GOAL = 5.0
"""Times faster than gloo between two hosts of two ranks."""

_RATE = "10gbit"
_ITERATIONS = 96
# With the goal of what is chosen unless somebody asks for something else; 0: none.
NETWORKS: tuple[tuple[Network, float], ...] = (
    (
        Network("2 hosts of 2 ranks", "rail:boxes=2,gpus=2,rails=1", _RATE, {"all_reduce": ("hierarchical", "ring")}),
        GOAL,
    ),
    (Network("4 hosts of 1 rank", "star:4", _RATE, {"all_reduce": ("direct", "two_shot", "ring")}), 0.0),
)


def _on_this_host(ranks: int, iterations: int) -> Iterator[Row]:
    jobs = _jobs(("auto", GLOO), iterations)

    def on_a_rank(exchange: Exchange) -> list[list[dict[str, object]]]:
        communicator: Any = create_communicator(exchange, sweep.SILENCE)
        found = timings(exchange, communicator, jobs)
        communicator.close()
        return [[asdict(timed) for timed in row] for row in found]

    answer = sweep.answer_of_rank_0(ranks, on_a_rank)
    found = [[Timed(**timed) for timed in row] for row in answer]
    return _rows(jobs, found, goal=0.0)


def _between_hosts(network: Network, goal: float, iterations: int) -> Iterator[Row]:
    jobs = _jobs(("auto", *network.others["all_reduce"], GLOO), iterations)
    _, found = measure(network.spec(), jobs)
    return _rows(jobs, found, goal)


def _jobs(algorithms: tuple[str, ...], iterations: int) -> list[Job]:
    return [Job("all_reduce", size, iterations, algorithms) for size in SIZES]


def _rows(jobs: Sequence[Job], found: Sequence[Sequence[Timed]], goal: float) -> Iterator[Row]:
    for job, row in zip(jobs, found, strict=True):
        for asked, timed in zip(job.algorithms, row, strict=True):
            gain = row[-1].seconds / timed.seconds
            missed = f"less than {goal:g} times gloo" if asked == "auto" and gain < goal else ""
            name = timed.algorithm if asked == timed.algorithm else f"{asked}: {timed.algorithm}"
            token = REDUCTIONS * timed.seconds
            yield Row(
                (f"{job.size >> 10} KiB", name, f"{1e6 * timed.seconds:.1f}", f"{1e3 * token:.2f}", f"{gain:.2f}"),
                missed,
            )


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    columns = (("size", 7), ("algorithm", -24), ("us", 9), (f"{REDUCTIONS} of them, ms", 14), ("gloo/this", 9))
    here = [
        Part(f"all_reduce, 1 host of {ranks} ranks", columns, partial(_on_this_host, ranks, options.iterations))
        for ranks in (2, 4)
    ]
    between = [
        Part(
            f"all_reduce, {network.title}, {_RATE}", columns, partial(_between_hosts, network, goal, options.iterations)
        )
        for network, goal in NETWORKS
    ]
    return (*here, *between)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--iterations", type=int, default=_ITERATIONS, metavar="N", help=f"timed ({_ITERATIONS})")


TABLE = Table(
    "decode",
    "many small all_reduces, as tensor-parallel decoding makes them, beside gloo (as root)",
    _parts,
    _configure,
)
