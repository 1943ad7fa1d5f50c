"""Several ranks on one GPU, against its memory and against NCCL: `python -m syntony.benchmarks cuda one_gpu`.

Ranks are threads (threads.py), each with a stream and its share of the GPU's processors. What a collective must read
and write, divided by what the same GPU moves in a large copy (read + write, measured in the same run), is the least
time there is:

    all_reduce, all_to_all       2 p S / copy        every rank reads S bytes and writes S
    all_gather, reduce_scatter   (p + 1) S / copy    every rank reads or writes S, and the other way S / p

with S the size of the total buffer, as in nccl-tests. Times are those of CUDA events round replayed graphs. Results are
compared before a time is taken. Nothing here says anything about NVLink.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any

from syntony.base.arguments import size as size_of
from syntony.base.command import UserError
from syntony.benchmarks.bench.contenders import Contender
from syntony.benchmarks.bench.elements import ELEMENTS
from syntony.benchmarks.bench.measure import Bench, Effort, Result
from syntony.benchmarks.bench.measurement import Case
from syntony.benchmarks.bench.session import told_to_people
from syntony.benchmarks.bench.shapes import SHAPES
from syntony.benchmarks.cuda.executed import Executed, Group
from syntony.benchmarks.cuda.gpu import EventTimer, Gpu, GpuMemory, executor
from syntony.benchmarks.cuda.nccl import Nccl
from syntony.benchmarks.cuda.session import get_ready
from syntony.benchmarks.cuda.threads import run_threads
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import Exchange

REPLAYS = 7  # of a graph of so many iterations:
EFFORT = Effort(iterations=20, turns=1)
SILENCE = 120.0

OF_COPY = {("all_reduce", "pull_two_shot"): 0.85} | {
    (kind, "pull"): 0.8 for kind in ("all_gather", "reduce_scatter", "all_to_all")
}
"""Goals at LARGE bytes, as fractions of what a copy on the same GPU allows."""
LARGE = 256 << 20
SMALL, SMALL_SECONDS = 8 << 10, 8e-6
"""The goal of the fastest all_reduce of SMALL bytes."""
COPY_ENGINE = 9.0
"""The first architecture that has one (Hopper)."""
TIMES_NCCL = 1.3
"""The goal of the fastest algorithm from 1 MiB on."""


@dataclass(frozen=True)
class Measured:
    """A row's contenders, by their median seconds."""

    collective: str
    size: int
    seconds: dict[str, float]
    wrong: int


def part(ranks: int, sizes: Sequence[int], with_nccl: bool, cuda: Any) -> Part:
    """The table. Raises UserError where it cannot be measured."""
    columns = (("bytes", 12), ("collective", -14), ("algorithm", -14), ("us", 10), ("of copy", 7), ("x nccl", 7))
    title = f"one GPU, several ranks ({ranks}); `of copy`: fraction of what a copy on the same GPU allows"
    return Part(title, columns, lambda: _rows(ranks, sizes, with_nccl, cuda))


def _rows(ranks: int, sizes: Sequence[int], with_nccl: bool, cuda: Any) -> Iterator[Row]:
    rate = copy_rate(cuda, LARGE)
    for measured in _measured(ranks, sizes, with_nccl, cuda):
        yield from rows_of(measured, ranks, rate)


def rows_of(measured: Measured, ranks: int, rate: float) -> Iterator[Row]:
    """A row per algorithm. `rate`: bytes per second that a copy reads and writes."""
    collective, size = measured.collective, measured.size
    limit = (2 * ranks if collective in ("all_reduce", "all_to_all") else ranks + 1) * size / rate
    nccl = measured.seconds.get(Nccl.label)
    ours = {label: seconds for label, seconds in measured.seconds.items() if label != Nccl.label}
    fastest = min(ours, key=lambda label: ours[label])
    for label, seconds in measured.seconds.items():
        missed = []
        if measured.wrong:
            missed.append("a result was wrong")
        goal = OF_COPY.get((collective, label), 0.0) if size == LARGE else 0.0
        if limit / seconds < goal:
            missed.append(f"{goal:g} of the copy")
        if label == fastest and (collective, size) == ("all_reduce", SMALL) and seconds > SMALL_SECONDS:
            missed.append(f"{SMALL_SECONDS * 1e6:g} us")
        if label == fastest and nccl is not None and size >= 1 << 20 and nccl / seconds < TIMES_NCCL:
            missed.append(f"{TIMES_NCCL:g} x NCCL")
        ratio = "" if nccl is None or label == Nccl.label else f"{nccl / seconds:.2f}"
        yield Row((size, collective, label, f"{seconds * 1e6:.2f}", f"{limit / seconds:.3f}", ratio), ", ".join(missed))


def _measured(ranks: int, sizes: Sequence[int], with_nccl: bool, cuda: Any) -> Iterator[Measured]:
    """As they come: ranks are threads beside this one."""
    answers: SimpleQueue[Measured | Exception | None] = SimpleQueue()

    def work(exchange: Exchange) -> int:
        with told_to_people():
            for measured in _on_a_rank(exchange, sizes, with_nccl, cuda):
                if exchange.rank == 0:
                    answers.put(measured)
        return 0

    def run() -> None:
        try:
            run_threads(ranks, work, SILENCE)
            answers.put(None)
        except Exception as error:
            answers.put(error)

    Thread(target=run, name="ranks").start()
    while (answer := answers.get()) is not None:
        if isinstance(answer, Exception):
            raise answer
        yield answer


def _on_a_rank(exchange: Exchange, sizes: Sequence[int], with_nccl: bool, cuda: Any) -> Iterator[Measured]:
    gpu = Gpu.of(exchange, cuda)
    memory = GpuMemory(gpu)
    group = Group(gpu, SILENCE)
    peers: list[Contender] = [Nccl(gpu, memory)] if with_nccl else []
    bench = Bench(exchange, memory, EventTimer(gpu, REPLAYS))
    for size in sizes:
        for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
            element = ELEMENTS["int32"]
            block = SHAPES[collective].block(size, exchange.size, element.item_bytes)
            case = Case(SHAPES[collective], element, "sum" if SHAPES[collective].reduces else None, 0, block)
            has_engine = float(gpu.facts["architecture"]) >= COPY_ENGINE
            ours = [Executed(group, memory, *names) for names in _algorithms(collective, size, has_engine)]
            results = bench.run(case, [*ours, *peers], EFFORT, forms=(False,))
            yield _summary(collective, case.bytes_moved(exchange.size), results)
    for peer in peers:
        peer.close()
    gpu.meet()


def _algorithms(collective: str, size: int, has_engine: bool) -> list[tuple[str, str]]:
    """One-sided exchange at every size; all_reduce also by rings, and small ones of these by every protocol; copies of
    large ones with and without the copy engine."""
    if collective != "all_reduce":
        copies = has_engine and size >= 1 << 20 and not SHAPES[collective].reduces
        return [("pull", "simple"), *([("pull", "bulk")] if copies else [])]
    protocols = ("simple", "ll", "ll128") if size <= 1 << 20 else ("simple",)
    return [("pull_two_shot", "simple"), ("pull", "simple"), *(("ring", protocol) for protocol in protocols)]


def _summary(collective: str, size: int, results: Sequence[Result]) -> Measured:
    timings = {result.label: timing for result in results if (timing := result.out_of_place) is not None}
    seconds = {label: timing.p50 for label, timing in timings.items()}
    return Measured(collective, size, seconds, sum(timing.wrong or 0 for timing in timings.values()))


def copy_rate(cuda: Any, size: int) -> float:
    """Bytes per second, read and written, of CUDA's own copy of `size` bytes on GPU 0."""
    stream, source, target = cuda.Stream(0), cuda.Memory(0, size), cuda.Memory(0, size)
    times = []
    for _ in range(REPLAYS + 1):
        before, after = cuda.Event(0), cuda.Event(0)
        before.record(stream.handle)
        for _ in range(EFFORT.iterations):
            target.copy_from(source, stream)
        after.record(stream.handle)
        stream.synchronize()
        times.append(after.seconds_since(before) / EFFORT.iterations)
    return float(2 * size / statistics.median(times[1:]))  # the first wakes the GPU up


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, default=4, metavar="N", help="how many ranks (4)")
    parser.add_argument("--sizes", default="8K,1M,16M,256M", metavar="S[,T...]", help="total bytes of a rank's buffer")
    parser.add_argument("--peers", choices=("nccl",), default=None, help="libraries to compare with")


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    get_ready()
    cuda = executor()
    if cuda.device_count() == 0:
        raise UserError("it needs a CUDA GPU and its driver; there is none here")
    sizes = tuple(map(size_of, options.sizes.split(",")))
    if any(each < 16 * options.ranks for each in sizes):
        raise UserError(f"--sizes: {options.ranks} ranks need at least {16 * options.ranks} bytes")
    return (part(options.ranks, sizes, options.peers is not None, cuda),)


TABLE = Table("one_gpu", "several ranks on one GPU against its memory, and NCCL", _parts, _configure)
