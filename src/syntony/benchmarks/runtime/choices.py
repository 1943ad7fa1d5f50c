"""Table `choices`: what the runtime chooses by itself, untuned, beside the best of what one could name instead.

    auto       as Communicators and the torch backend call it
    best       the fastest of all built-in algorithms that have this collective, each asked for by name

Where `auto` is more than 10 % behind, the row is marked as missed. Its own algorithm is among those that compete, so
the ratio of a good choice is around 1: below, as far as two measurements of the same differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from syntony import _core
from syntony.benchmarks.bench.contenders import Syntony
from syntony.benchmarks.bench.session import create_communicator
from syntony.benchmarks.runtime.measured import sweep
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import Exchange
from syntony.collectives.tuner.settings import self_sufficient

LEAST = 0.9
"""Of the best one's speed."""

_AUTO = "auto"


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    choice = sweep.chosen(options)
    return tuple(_of(ranks, choice) for ranks in choice.ranks)


def _of(ranks: int, choice: sweep.Choice) -> Part:
    def rows() -> Iterator[Row]:
        for collective in choice.collectives:
            yield from _rows(ranks, collective, choice)

    columns = (("collective", -14), ("bytes", 9), ("auto us", 9), ("best us", 9), ("best", -18), ("best/auto", 9))
    title = f"{ranks} ranks on {_core.usable_cpus()} cores: the default choice and the best, p50 of {{}} turns"
    return Part(title.format(choice.rounds), columns, rows)


def _rows(ranks: int, collective: str, choice: sweep.Choice) -> Iterator[Row]:
    names = self_sufficient(collective)

    def contenders(exchange: Exchange) -> list[Syntony]:
        communicator = create_communicator(exchange, sweep.SILENCE)
        return [Syntony(communicator, name) for name in (_AUTO, *names)]

    for measured in sweep.sweep(ranks, contenders, (collective,), choice.sizes, choice.rounds):
        labels = list(measured.seconds)
        auto = measured.seconds.pop(labels[0])
        label, best = min(measured.seconds.items(), key=lambda item: item[1])
        missed = f"below {LEAST}" if best / auto < LEAST else ""
        if measured.wrong:
            missed = f"{measured.wrong} wrong elements"
        times = (f"{1e6 * auto:.1f}", f"{1e6 * best:.1f}", label.removeprefix("syntony:"), f"{best / auto:.2f}")
        yield Row((collective, measured.size, *times), missed)


TABLE = Table("choices", "the untuned default beside the best choice of each size", _parts, sweep.configure)
