"""Table `limit`: how near a large all_reduce comes to what memory can do at all.

all_reduce of S bytes on p ranks must read every input once and write every output once: 2 S bytes per rank, if nothing
is staged. The limit is the rate at which the same ranks, all at once, copy S bytes from one buffer to another with
non-temporal stores (2 S bytes per rank and copy, `syntony._core.stream_copy`), measured between the all_reduces.

    fraction = (2 S / seconds of all_reduce) / (2 S / seconds of the copy) = seconds of the copy / seconds of all_reduce
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from syntony import _core
from syntony.base.arguments import size as size_of
from syntony.benchmarks.bench.contenders import Syntony, Test
from syntony.benchmarks.bench.elements import Array
from syntony.benchmarks.bench.measure import Bench
from syntony.benchmarks.bench.measurement import LocalMeasurement, Memory
from syntony.benchmarks.bench.session import create_communicator
from syntony.benchmarks.runtime.measured import sweep
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import Exchange
from syntony.collectives.buffers import empty

GOALS = {"registered": 0.95, "ordinary": 0.85}
"""Of the non-temporal copy's rate; registered memory is syntony.empty's."""

_LINE = 64


class _Registered(Memory):
    """The bench's memory, from syntony.empty."""

    def allocate(self, side: int, size: int) -> Array:
        del side
        return empty(size, np.uint8)


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    import torch  # noqa: F401  bfloat16's views, once, before ranks are forked

    columns = (
        ("memory", -11), ("element", -9), ("bytes", 9), ("all_reduce ms", 13), ("copy ms", 8), ("fraction", 8),
        ("goal", 5),
    )  # fmt: skip
    title = f"all_reduce on {options.ranks} ranks, out of place, against a non-temporal copy by all of them; medians"
    return (Part(title, columns, lambda: _rows(options.ranks, options.size, options.rounds)),)


def _rows(ranks: int, size: int, rounds: int) -> Iterator[Row]:
    for kind, goal in GOALS.items():
        for element in ("float", "bfloat16"):
            work = partial(_on_a_rank, kind=kind, element=element, size=size, rounds=rounds)
            reduced, copied, wrong = sweep.answer_of_rank_0(ranks, work)
            head = (kind, element, size)
            if wrong:
                yield Row((*head, "", "", "", goal), f"{wrong} wrong elements")
                continue
            fraction = copied / reduced
            cells = (*head, f"{1e3 * reduced:.2f}", f"{1e3 * copied:.2f}", f"{fraction:.2f}", f"{goal:.2f}")
            yield Row(cells, "" if fraction >= goal else "further from the limit than the goal")


def _on_a_rank(exchange: Exchange, kind: str, element: str, size: int, rounds: int) -> tuple[float, float, int]:
    """Medians in seconds, of all_reduce and of the copy, over all ranks and rounds; wrong elements on this machine."""
    communicator: Any = create_communicator(exchange, sweep.SILENCE)
    memory = (_Registered if kind == "registered" else Memory)(exchange.rank, exchange.size)
    case = sweep.case_of("all_reduce", size, exchange.size, element)
    test: Test | None = memory.test(case, in_place=False)
    assert test is not None
    contender = Syntony(communicator)
    call = contender.prepare(test)
    assert call is not None
    measurement = LocalMeasurement(contender, memory, case, test, call)
    wrong = measurement.check(1)
    source, target = (np.ones(size + _LINE, np.uint8) for _ in range(2))
    target = target[-target.ctypes.data % _LINE :][: size // _LINE * _LINE]
    reduced: list[int] = []
    copied: list[int] = []
    for _ in range(rounds):
        reduced += measurement.lap(1, 2)
        communicator.barrier()
        for _ in range(2):
            begin = time.perf_counter_ns()
            _core.stream_copy(target, source[: target.size])
            copied.append(time.perf_counter_ns() - begin)
    everybody = Bench(exchange).gather([reduced, copied, wrong])
    communicator.close()
    medians = [float(np.median([times[column] for times in everybody])) * 1e-9 for column in (0, 1)]
    return medians[0], medians[1], sum(faults for _, _, faults in everybody)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", type=size_of, default=64 << 20, metavar="SIZE", help="bytes of each buffer (64M)")
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="how many processes (2)")
    parser.add_argument("--rounds", type=int, default=8, metavar="N", help="turns of all_reduce and copy (8)")


TABLE = Table("limit", "64 MiB all_reduce as a fraction of the non-temporal copy's rate", _parts, _configure)
