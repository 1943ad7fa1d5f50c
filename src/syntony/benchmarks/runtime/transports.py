"""Table `transports`: UCX or libfabric between emulated hosts of this machine, beside what we do ourselves.

    TCP     over the library's own sockets, beside our TCP
    memory  over the library's shared memory, beside the slots through which ranks of one host send frames. Each runs
            the same Program. Where all ranks share a host, auto needs neither frames nor Programs, and reads large
            blocks from where they are, which no wire between hosts can: it is shown, without a goal

Every way has processes of its own, since a process polls the wires of all its groups. They take turns in rounds; told
is the median of the rounds' medians. Every result is checked.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from syntony.benchmarks.bench.contenders import Syntony
from syntony.benchmarks.bench.session import create_communicator
from syntony.benchmarks.runtime.measured import sweep
from syntony.benchmarks.runtime.measured.sweep import Choice, Measured
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import Exchange

GOAL = 0.9
"""Of the speed of ours, in the geometric mean of a collective's sizes."""
SIZES = "64,1K,16K,256K,4M,64M"

_AUTO = dict.fromkeys(sweep.COLLECTIVES, "auto")
_SAME = {"all_reduce": "ring", "all_gather": "direct", "reduce_scatter": "direct", "all_to_all": "direct"}


@dataclass(frozen=True)
class Way:
    """How ranks are connected: each on a host of its own, or all on one. `algorithms`: by collective."""

    name: str
    apart: bool
    algorithms: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)


TCP = Way("tcp", True, _AUTO)
SLOTS = Way("slots", False, _SAME)
ONE_HOST = Way("auto", False, _AUTO)
WIRES = {
    "ucx": ({"UCX_TLS": "tcp,self"}, {"UCX_TLS": "posix,cma,self", "UCX_MM_ERROR_HANDLING": "y"}),
    "libfabric": ({"FI_PROVIDER": "tcp"}, {"FI_PROVIDER": "shm"}),
}
"""By SYNTONY_TRANSPORT, what makes it use sockets, and memory."""


def measure(way: Way, ranks: int, collective: str, choice: Choice) -> list[Measured]:
    """Once, a row per size. Raises RankError, UserError."""

    def make(exchange: Exchange) -> list[Syntony]:
        os.environ.update(way.environment)
        if way.apart:
            os.environ["SYNTONY_HOST"] = f"host {exchange.rank}"
        return [Syntony(create_communicator(exchange, sweep.SILENCE), way.algorithms[collective])]

    return sweep.sweep(ranks, make, (collective,), choice.sizes, 1)


def _rows(library: Way, ours: Sequence[Way], choice: Choice) -> Iterator[Row]:
    """The first of `ours` is what the library is compared with."""
    for ranks in choice.ranks:
        for collective in choice.collectives:
            yield from _collective((library, *ours), ranks, collective, choice)


def _collective(ways: Sequence[Way], ranks: int, collective: str, choice: Choice) -> Iterator[Row]:
    rounds = [[measure(way, ranks, collective, choice) for way in ways] for _ in range(choice.rounds)]
    ratios = []
    for index, size in enumerate(choice.sizes):
        head = (collective, ranks, size)
        if wrong := sum(found[index].wrong for one in rounds for found in one):
            yield Row((*head, *("" for _ in ways), ""), f"{wrong} wrong elements")
            continue
        times = [statistics.median(_seconds(one[number][index]) for one in rounds) for number in range(len(ways))]
        ratios.append(times[1] / times[0])
        yield Row((*head, *(f"{1e6 * seconds:.1f}" for seconds in times), f"{ratios[-1]:.2f}"))
    if ratios:
        mean = sweep.geometric_mean(ratios)
        missed = "" if mean >= GOAL else f"less than {GOAL} of {ways[1].name}; the worst is {min(ratios):.2f}"
        yield Row((collective, ranks, "mean", *("" for _ in ways), f"{mean:.2f}"), missed)


def _seconds(measured: Measured) -> float:
    (seconds,) = measured.seconds.values()
    return seconds


def _parts(options: argparse.Namespace) -> Iterator[Part]:
    choice = sweep.chosen(options)
    name: str = options.transport
    sockets, memory = WIRES[name]
    transport = {"SYNTONY_TRANSPORT": name}
    for title, library, ours in (
        ("sockets", Way(name, True, _AUTO, sockets | transport), (TCP,)),
        ("shared memory", Way(name, True, _SAME, memory | transport), (SLOTS, ONE_HOST)),
    ):
        columns = (("collective", -14), ("ranks", 5), ("bytes", 9),
                   *((f"{way.name} us", 12) for way in (library, *ours)),
                   (f"{ours[0].name}/{name}", 13))  # fmt: skip
        yield Part(f"{name} over {title}, medians", columns, partial(_rows, library, ours, choice))


def _configure(parser: argparse.ArgumentParser) -> None:
    sweep.configure(parser)
    parser.set_defaults(ranks="2", sizes=SIZES, rounds=3)
    parser.add_argument("--transport", default="ucx", choices=tuple(WIRES), help="whose (ucx)")


TABLE = Table("transports", "UCX and libfabric against our TCP and shared memory", _parts, _configure)
