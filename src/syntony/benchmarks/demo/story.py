"""What `make demo` shows on one screen: detect, synthesize and execute, benchmark, train.

Every part shows the command that does the same, so that each can be repeated alone.
"""

from __future__ import annotations

import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import numpy as np

from syntony.base.answer import NARROW, shell_lines, wrapped
from syntony.benchmarks.bench.contenders import Contender, Syntony, TorchGroup
from syntony.benchmarks.bench.elements import ELEMENTS
from syntony.benchmarks.bench.measure import Bench, Effort
from syntony.benchmarks.bench.measurement import Case
from syntony.benchmarks.bench.session import create_communicator
from syntony.benchmarks.bench.shapes import SHAPES
from syntony.benchmarks.bench.table import bandwidths
from syntony.benchmarks.demo.picture import sparkline
from syntony.benchmarks.demo.text import standard_library
from syntony.collectives.bootstrap.launch import Exchange, run_ranks

RANKS = 4
BOX_RANKS = 8  # GPUs of a DGX-1
SILENCE = 60.0  # seconds that ranks may keep us waiting
SCHEDULE = Path("allgather.json")

BENCH_SIZES = (8, 64, 1 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20, 16 << 20)
BENCH_ALGORITHMS = ("auto", "ring", "dbt", "hierarchical")

STEPS = 48
ROWS = 4  # of text, per rank and step
TOLERANCE = 1e-5  # relative, between the two loss curves


def main() -> int:
    """Tells the story. Exit code 1 when something that was checked is not as it should be."""
    # Imported before ranks are forked, so that they need not do it themselves.
    import torch.distributed  # noqa: F401

    import syntony.collectives.communicator  # noqa: F401

    begin = time.monotonic()
    wires()
    with tempfile.TemporaryDirectory() as folder:
        right = execute(Path(folder) / SCHEDULE)
    right = benchmark() and right
    right = train() and right
    print(f"\nThat took {time.monotonic() - begin:.0f} s. Three commands to try next:")
    print("  .venv/bin/syntony topo list")
    print(f"  .venv/bin/syntony synth torus:2x3 all_reduce --pareto -o {SCHEDULE.with_stem('torus')}")
    print("  .venv/bin/syntony bench all_gather -b 8 -e 16M -f 8 --ranks 4 --peers gloo")
    return 0 if right else 1


def _title(number: int, text: str, command: str = "") -> None:
    """What comes, and the command that does the same."""
    print(f"{chr(10) if number > 1 else ''}{number}. {text}")
    print(
        "\n".join(shell_lines(command, NARROW, indent="   ") if command else []), end="\n" * bool(command), flush=True
    )


# ---- 1 ---------------------------------------------------------------------------------------------------------------
def wires() -> None:
    """What this machine is made of."""
    from syntony.topologies.readers.detect import detect, rows

    _title(1, "This machine", "syntony topo detect")
    for name, value in rows(detect()):
        print("\n".join(wrapped(f"   {name:12} {value}", NARROW, more=" " * 13)))


# ---- 2 ---------------------------------------------------------------------------------------------------------------
def execute(path: Path) -> bool:
    """Synthesizes, proves, writes, checks and runs the all-gather of SCCL's paper for a DGX-1."""
    from syntony.__main__ import main as syntony

    words = ["dgx1", "all_gather", "--steps", "2", "--rounds", "3", "--chunks", "2"]
    _title(2, "A schedule for a DGX-1", f"syntony synth {' '.join(words)} -o {path.name}")
    with _indented(path.parent):
        if syntony(["synth", *words, "-o", str(path)]) or syntony(["verify", str(path)]):
            return False
    sys.stdout.flush()
    right = run_ranks(BOX_RANKS, lambda exchange: _gather_and_compare(exchange, path), SILENCE) == 0
    print(f"   executed on {BOX_RANKS} processes: {'equal to torch, bit for bit' if right else 'WRONG'}")
    return right


def _gather_and_compare(exchange: Exchange, path: Path) -> int:
    """Gathers random bits with the schedule and with torch's gloo; 1 if any bit differs."""
    import torch

    communicator = create_communicator(exchange, SILENCE)
    peer = TorchGroup(exchange, "gloo", SILENCE)
    name = communicator.load(path)
    differences = 0
    for count in (1, 1009, 262144):
        mine = np.random.default_rng((exchange.rank, count)).integers(0, 2**31, count, dtype=np.int32)
        ours, theirs = (np.zeros(count * exchange.size, np.int32) for _ in range(2))
        communicator.all_gather(mine, ours, algorithm=name)
        peer.all_gather(torch.from_numpy(mine), torch.from_numpy(theirs))
        differences += int(np.count_nonzero(ours != theirs))
    communicator.close()
    return int(differences > 0)


@contextmanager
def _indented(folder: Path) -> Iterator[None]:
    """Shows what is printed three columns further right, and without the temporary folder's name."""
    captured = io.StringIO()
    with redirect_stdout(captured):
        yield
    for line in captured.getvalue().replace(f"{folder}{os.sep}", "").splitlines():
        print("\n".join(wrapped(f"   {line}", NARROW)))


# ---- 3 ---------------------------------------------------------------------------------------------------------------
# Ours, and the median of every contender beside it: (heading, unit, width).
_COLUMNS = (
    *(("size", "(B)", 9), ("busbw", "(GB/s)", 7), ("#wrong", "", 7), ("|", "|", 2), ("auto", "(us)", 8)),
    *(("ring", "(us)", 9), ("dbt", "(us)", 9), ("hierarc.", "(us)", 9), ("gloo", "(us)", 9), ("gain", "", 8)),
)


def benchmark() -> bool:
    """all_reduce with every algorithm against gloo, results checked."""
    command = f"syntony bench all_reduce -b 8 -e 16M --algo {','.join(BENCH_ALGORITHMS)} --peers gloo"
    _title(3, f"all_reduce on {RANKS} processes, every result checked", command)
    return run_ranks(RANKS, _bench_rank, SILENCE) == 0


def _bench_rank(exchange: Exchange) -> int:
    communicator = create_communicator(exchange, SILENCE)
    contenders: list[Contender] = [Syntony(communicator, algorithm) for algorithm in BENCH_ALGORITHMS]
    contenders.append(TorchGroup(exchange, "gloo", SILENCE))
    bench = Bench(exchange)
    show = _show if exchange.rank == 0 else lambda cells: None
    show([heading for heading, _, _ in _COLUMNS])
    show([unit for _, unit, _ in _COLUMNS])
    wrong = 0
    for size in BENCH_SIZES:
        case = Case(SHAPES["all_reduce"], ELEMENTS["float"], "sum", 0, size // 4)
        iterations = 40 if size <= 16 << 10 else 16 if size <= 1 << 20 else 6
        results = bench.run(case, contenders, Effort(iterations, warmups=2), forms=(True,))
        timings = [result.in_place for result in results if result.in_place is not None]
        auto, gloo = timings[0], timings[-1]
        faults = sum(timing.wrong or 0 for timing in timings)
        wrong += faults
        _, busbw = bandwidths(case.shape, exchange.size, size, auto.mean)
        medians = [f"{timing.p50 * 1e6:.1f}" for timing in timings]
        show([size, f"{busbw:.2f}", faults, "|", *medians, f"{gloo.p50 / auto.p50:.1f}x"])
    communicator.close()
    return int(wrong > 0)


def _show(cells: Sequence[object]) -> None:
    print("  " + "".join(f"{cell:>{width}}" for cell, (_, _, width) in zip(cells, _COLUMNS, strict=True)), flush=True)


# ---- 4 ---------------------------------------------------------------------------------------------------------------
def train() -> bool:
    """The same training on gloo and on Syntony: equal losses, and the time of a step."""
    _title(4, f"A byte-level transformer: unmodified torch DDP, {RANKS} processes")
    return run_ranks(RANKS, _train_rank, SILENCE) == 0


def _train_rank(exchange: Exchange) -> int:
    from syntony.benchmarks.bench.torch_store import open_store
    from syntony.benchmarks.demo.training import train

    text = standard_library()
    runs = {
        backend: train(backend, open_store(exchange, backend, SILENCE), exchange.rank, exchange.size, text, STEPS, ROWS)
        for backend in ("gloo", "syntony")
    }
    curves = [runs[backend].losses for backend in runs]
    apart = max(abs(a - b) / abs(a) for a, b in zip(*curves, strict=True))
    equal = apart <= TOLERANCE
    if exchange.rank == 0:
        low, high = min(map(min, curves)), max(map(max, curves))
        for backend, run in runs.items():
            step = statistics.median(run.seconds[2:])
            print(
                f"   {backend:8} {run.losses[0]:.2f} {sparkline(run.losses[::2], low, high)} {run.losses[-1]:.4f}"
                f"   step {step * 1e3:6.1f} ms"
            )
        print(f"   losses {'equal' if equal else 'DIFFER'}: at most {apart:.1e} apart (relative)")
    return int(not equal)
