"""Table `decode`: what tensor-parallel decoding asks of a network: many small all_reduces, one after another.

A layer of a transformer sums twice per token (after attention and after the MLP), so a model of 48 layers makes 96
all_reduces of (batch x hidden) elements for every token: 10 to 64 KiB. Nothing else can run meanwhile; what they take
together is time that every token waits.

Ranks are those of emulated hosts (`syntony lab`, as root), whose cores they share: figures compare algorithms and gloo
with each other, in one run; they are not those of a cluster. Every result is checked.

Algorithms take turns, as where ranks share cores one turn may take twice as long as the next: a time is the median over
turns, those included in which `auto` chose that algorithm. The goals, between hosts: GOAL times faster than gloo, and
no algorithm is more than a tenth faster than the one that `auto` chooses untuned.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from statistics import median
from typing import Any

from syntony.benchmarks.bench.session import create_communicator
from syntony.benchmarks.runtime.hosts import Network, measure
from syntony.benchmarks.runtime.measured import sweep
from syntony.benchmarks.runtime.measured.hosts_rank import GLOO, Job, Timed, timings
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import Exchange

REDUCTIONS = 96
"""Of a token."""

SIZES = "10K,20K,64K"
GOAL = 5.0
"""Times faster than gloo between two hosts of two ranks."""
NEAR_BEST = 1.1

_RATE = "10gbit"
_ITERATIONS = 96
_ROUNDS = 3
# With the goal of what is chosen unless somebody asks for something else; 0: none.
NETWORKS: tuple[tuple[Network, float], ...] = (
    (
        Network(
            "2 hosts of 2 ranks",
            "rail:boxes=2,gpus=2,rails=1",
            _RATE,
            {"all_reduce": ("two_level", "hierarchical", "ring", "rabenseifner")},
        ),
        GOAL,
    ),
    (
        Network(
            "4 hosts of 1 rank",
            "star:4",
            _RATE,
            {"all_reduce": ("direct", "two_shot", "recursive_doubling", "rabenseifner", "ring")},
        ),
        0.0,
    ),
)


def _on_this_host(ranks: int, sizes: Sequence[int], iterations: int, rounds: int) -> Iterator[Row]:
    jobs = _jobs(("auto", GLOO), sizes, iterations)

    def on_a_rank(exchange: Exchange) -> list[list[dict[str, object]]]:
        communicator: Any = create_communicator(exchange, sweep.SILENCE)
        found = timings(exchange, communicator, jobs * rounds)
        communicator.close()
        return [[asdict(timed) for timed in row] for row in found]

    answer = sweep.answer_of_rank_0(ranks, on_a_rank)
    found = [[Timed(**timed) for timed in row] for row in answer]
    return _rows(jobs, typical(found, rounds), goal=0.0)


def _between_hosts(network: Network, goal: float, sizes: Sequence[int], iterations: int, rounds: int) -> Iterator[Row]:
    jobs = _jobs(("auto", *network.others["all_reduce"], GLOO), sizes, iterations)
    _, found = measure(network.spec(), jobs * rounds)
    return _rows(jobs, typical(found, rounds), goal)


def _jobs(algorithms: tuple[str, ...], sizes: Sequence[int], iterations: int) -> list[Job]:
    return [Job("all_reduce", size, iterations, algorithms) for size in sizes]


def typical(found: Sequence[Sequence[Timed]], rounds: int) -> list[list[Timed]]:
    """The rows of the first turn, with the median of what an algorithm took in all turns, whoever asked for it."""
    jobs = len(found) // rounds
    rows = []
    for job in range(jobs):
        cells = [timed for row in found[job::jobs] for timed in row]
        times = {
            name: median(timed.seconds for timed in cells if timed.algorithm == name)
            for name in {timed.algorithm for timed in cells}
        }
        rows.append([replace(timed, seconds=times[timed.algorithm]) for timed in found[job]])
    return rows


def _rows(jobs: Sequence[Job], found: Sequence[Sequence[Timed]], goal: float) -> Iterator[Row]:
    for job, row in zip(jobs, found, strict=True):
        best = min(timed.seconds for timed in row if timed.algorithm != GLOO)
        for asked, timed in zip(job.algorithms, row, strict=True):
            gain = row[-1].seconds / timed.seconds
            missed = ""
            if asked == "auto" and timed.seconds > NEAR_BEST * best:
                missed = f"{timed.seconds / best:.2f} times what the best takes"
            if asked == "auto" and gain < goal:
                missed = f"less than {goal:g} times gloo"
            name = timed.algorithm if asked == timed.algorithm else f"{asked}: {timed.algorithm}"
            token = REDUCTIONS * timed.seconds
            figures = (f"{1e6 * timed.seconds:.1f}", f"{1e3 * token:.2f}", f"{gain:.2f}", f"{best / timed.seconds:.2f}")
            yield Row((f"{job.size / 1024:g} KiB", name, *figures), missed)


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    columns = (
        ("size", 7),
        ("algorithm", -24),
        ("us", 9),
        (f"{REDUCTIONS} of them, ms", 14),
        ("gloo/this", 9),
        ("best/this", 9),
    )
    choice = sweep.chosen(options)
    effort = (choice.sizes, options.iterations, choice.rounds)
    here = [
        Part(f"all_reduce, 1 host of {ranks} ranks", columns, partial(_on_this_host, ranks, *effort))
        for ranks in (2, 4)
        if not options.network
    ]
    between = [
        Part(f"all_reduce, {network.title}, {_RATE}", columns, partial(_between_hosts, network, goal, *effort))
        for network, goal in NETWORKS
        if not options.network or network.topology in options.network
    ]
    return (*here, *between)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(ranks="2", collectives="all_reduce")
    topologies = [network.topology for network, _ in NETWORKS]
    parser.add_argument("--network", action="append", choices=topologies, help="only this one; may be repeated (all)")
    parser.add_argument("--sizes", default=SIZES, metavar="SIZE[,..]", help=f"bytes ({SIZES})")
    parser.add_argument("--iterations", type=int, default=_ITERATIONS, metavar="N", help=f"timed ({_ITERATIONS})")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, metavar="N", help=f"turns of each algorithm ({_ROUNDS})")


TABLE = Table(
    "decode",
    "many small all_reduces, as tensor-parallel decoding makes them, beside gloo (as root)",
    _parts,
    _configure,
)
