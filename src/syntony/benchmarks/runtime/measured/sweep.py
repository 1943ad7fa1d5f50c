"""Contenders side by side over collectives and sizes, on ranks of this machine; what tables of speed are made of.

They take turns in rounds within one run, so a busy machine hits all alike; what is told is the median over all rounds.
No time is told of a wrong result.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from syntony.base.arguments import size as size_of
from syntony.base.command import UserError
from syntony.benchmarks.bench.contenders import Contender
from syntony.benchmarks.bench.elements import ELEMENTS
from syntony.benchmarks.bench.measure import Bench, Effort
from syntony.benchmarks.bench.measurement import Case
from syntony.benchmarks.bench.shapes import SHAPES
from syntony.benchmarks.mpi.remote_peer import RemotePeer
from syntony.collectives.bootstrap.launch import Exchange, run_ranks

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SIZES = "8,64,512,4K,32K,64K,256K,1M,8M,64M"
SILENCE = 300.0  # seconds without progress after which a run is given up

Make = Callable[[Exchange], Sequence[Contender | RemotePeer]]


@dataclass(frozen=True)
class Measured:
    """One row: medians in seconds by contender, ours first; `wrong` elements of all contenders, added up."""

    collective: str
    ranks: int
    size: int
    seconds: dict[str, float]
    wrong: int


def sweep(
    ranks: int, make: Make, collectives: Iterable[str], sizes: Iterable[int], rounds: int, in_place: bool = False
) -> list[Measured]:
    """Measures on `ranks` new processes. `in_place`: all_reduce is measured so, as torch's has one buffer.

    Raises RankError, UserError.
    """

    def work(exchange: Exchange) -> list[tuple[Any, ...]]:
        bench, contenders = Bench(exchange), make(exchange)
        rows = []
        for collective in collectives:
            for size in sizes:
                forms = (in_place and collective == "all_reduce",)
                case = case_of(collective, size, exchange.size)
                results = bench.run(case, contenders, effort(size, rounds), forms)
                timings = {r.label: t for r in results if (t := r.in_place if forms[0] else r.out_of_place)}
                wrong = sum(timing.wrong or 0 for timing in timings.values())
                seconds = {label: timing.p50 for label, timing in timings.items()}
                rows.append((collective, exchange.size, size, seconds, wrong))
        for contender in contenders:
            contender.close()
        return rows

    return [Measured(*row) for row in answer_of_rank_0(ranks, work)]


def answer_of_rank_0(ranks: int, work: Callable[[Exchange], Any]) -> Any:
    """Runs `work` on `ranks` new processes; what it returned on rank 0, through JSON. Raises RankError, UserError."""
    with tempfile.TemporaryFile("w+") as answer:  # rank 0 writes what this process reads

        def run(exchange: Exchange) -> int:
            value = work(exchange)
            if exchange.rank == 0:
                json.dump(value, answer)
                answer.flush()
            return 0

        run_ranks(ranks, run, SILENCE)
        answer.seek(0)
        return json.load(answer)


def case_of(collective: str, size: int, ranks: int, element: str = "float") -> Case:
    """About `size` bytes in the larger buffer, and never nothing."""
    shape, kind = SHAPES[collective], ELEMENTS[element]
    block = max(1, shape.block(size, ranks, kind.item_bytes))
    return Case(shape, kind, "sum" if shape.reduces else None, 0, block)


def effort(size: int, rounds: int) -> Effort:
    """Enough iterations for a median, about as long for every size; inputs are written before each.

    A turn of less than some milliseconds would be over before the ranks, just awoken, are on different processors.
    """
    per_round = max(6, min(250, (32 << 20) // max(size, 1)))
    return Effort(iterations=rounds * per_round, warmups=2, turns=rounds, fresh=True)


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive numbers."""
    return math.exp(sum(map(math.log, values)) / len(values))


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of a sweep."""
    parser.add_argument("--collectives", default=",".join(COLLECTIVES), metavar="C[,..]", help="which (all four)")
    parser.add_argument("--ranks", default="2,4", metavar="N[,..]", help="how many processes (2,4)")
    parser.add_argument("--sizes", default=SIZES, metavar="SIZE[,..]", help=f"bytes ({SIZES})")
    parser.add_argument("--rounds", type=int, default=8, metavar="N", help="turns of each contender (8)")


@dataclass(frozen=True)
class Choice:
    """What `configure`'s options say."""

    collectives: tuple[str, ...]
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]
    rounds: int


def chosen(options: argparse.Namespace) -> Choice:
    """Raises UserError, naming the option."""
    collectives = tuple(options.collectives.split(","))
    for name in collectives:
        if name not in COLLECTIVES:
            raise UserError(f"--collectives {name}: there are {', '.join(COLLECTIVES)}")
    try:
        ranks = tuple(map(int, options.ranks.split(",")))
        sizes = tuple(map(size_of, options.sizes.split(",")))
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise UserError(f"--ranks takes numbers and --sizes takes bytes such as 8,64K,1M: {error}") from None
    if min(ranks) < 2 or options.rounds < 1:
        raise UserError("--ranks must be at least 2, --rounds at least 1")
    return Choice(collectives, ranks, sizes, options.rounds)
