"""Table `soak`: operations for minutes or hours: does anything go wrong, or grow?

First so many small all_reduces; then, for so many minutes, random operations (random_operations.py), each checked, in
three groups driven by two threads per rank: all ranks, all ranks once more, and the ranks of one half. Four ranks on
two "hosts" of this machine, so that shared memory and TCP are both at work. Resident memory and descriptors of every
rank are read a hundred times; the least of the second fifth of the time, when all buffers have been grown, stands
against the least of the last fifth, as at any moment the other thread may hold arrays of some MiB.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from syntony.base.arguments import count
from syntony.benchmarks.runtime.measured.held import descriptors, resident_bytes
from syntony.benchmarks.runtime.measured.returned import returned_by
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import Exchange

MOST_GROWTH = 4 << 20
"""Goal: bytes by which a rank's resident memory may grow: the C library's heap breathes by some hundred KiB."""
_HOSTS = "aabb"
_BLOCK = 50  # operations between two agreements on whether to go on
_TIMEOUT = 120.0


@dataclass(frozen=True)
class Holding:
    """What a process holds."""

    resident: int  # bytes
    descriptors: int

    @classmethod
    def now(cls) -> Holding:
        return cls(resident_bytes(), len(descriptors()))


@dataclass(frozen=True)
class Outcome:
    """One rank's."""

    operations: int
    seconds: float
    early: Holding
    late: Holding


def _small(exchange: Exchange, operations: int) -> Outcome:
    import numpy as np

    from syntony.collectives.communicator import Communicator

    with Communicator.create(exchange, _TIMEOUT) as group:
        array = np.ones(1)
        early, begin = Holding.now(), time.monotonic()
        for number in range(operations):
            group.all_reduce(array)
            if array[0] != group.size:
                raise AssertionError(f"all_reduce {number} left {array[0]}")
            array[0] = 1
            if number == operations // 5:
                early = Holding.now()
        return Outcome(operations, time.monotonic() - begin, early, Holding.now())


def _mixed(exchange: Exchange, seconds: float, seed: int) -> Outcome:
    import numpy as np

    from syntony.benchmarks.runtime.measured.random_operations import random_operation
    from syntony.collectives.communicator import Communicator

    world = Communicator.create(exchange, _TIMEOUT)
    again = world.split(0, timeout=_TIMEOUT)
    half = world.split(world.rank % 2, timeout=_TIMEOUT)  # one rank of each host
    assert again is not None
    assert half is not None
    begin = time.monotonic()
    done = [0, 0]
    seen: list[tuple[float, Holding]] = []  # when, as a part of the time
    failures: list[BaseException] = []

    def drive(thread: int, groups: tuple[Communicator, ...]) -> None:
        rng = [random.Random(f"{seed} {thread} {place}") for place, _ in enumerate(groups)]
        order = random.Random(f"{seed} {thread}")
        go_on = np.ones(1, np.uint8)
        try:
            while go_on[0]:
                for _ in range(_BLOCK):
                    place = order.randrange(len(groups))
                    random_operation(groups[place], rng[place])
                done[thread] += _BLOCK
                if groups[0].rank == 0:
                    go_on[0] = time.monotonic() - begin < seconds
                groups[0].broadcast(go_on)  # groups[0] has all ranks: they stop together
                passed = (time.monotonic() - begin) / seconds
                if thread == 0 and passed > (seen[-1][0] if seen else 0) + 0.01:
                    seen.append((passed, Holding.now()))
        except BaseException as failure:
            failures.append(failure)
            for group in (world, again, half):
                group.abort(f"a thread failed: {failure}")

    threads = [
        threading.Thread(target=drive, args=(0, (world,))),
        threading.Thread(target=drive, args=(1, (again, half))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    took = time.monotonic() - begin
    early, late = _least(seen, 0.2, 0.4), _least(seen, 0.8, 1.0)
    for group in (half, again, world):
        group.close()
    return Outcome(sum(done), took, early, late)


def _least(seen: list[tuple[float, Holding]], begin: float, end: float) -> Holding:
    """Between two parts of the time; where nothing was read then, at the end."""
    then = [holding for passed, holding in seen if begin <= passed <= end] or [Holding.now()]
    return Holding(min(one.resident for one in then), min(one.descriptors for one in then))


def _row(name: str, outcomes: list[Outcome]) -> Row:
    grown = max(one.late.resident - one.early.resident for one in outcomes)
    opened = max(one.late.descriptors - one.early.descriptors for one in outcomes)
    missed = "memory grows" if grown > MOST_GROWTH else "descriptors become more" if opened > 0 else ""
    slowest = max(one.seconds for one in outcomes)
    resident = max(one.late.resident for one in outcomes)
    figures = (outcomes[0].operations, f"{slowest:.0f}", f"{resident / 1e6:.0f}", f"{grown / 1e3:+.0f}", f"{opened:+d}")
    return Row((name, len(outcomes), *figures), missed)


def _rows(operations: int, minutes: float, seed: int) -> Iterator[Row]:
    def small(exchange: Exchange) -> Outcome:
        return _small(exchange, operations)

    def mixed(exchange: Exchange) -> Outcome:
        return _mixed(exchange, 60 * minutes, seed)

    patience = 60 * minutes + _TIMEOUT
    runs: tuple[tuple[str, int, Callable[[Exchange], Outcome], str, float], ...] = (
        ("all_reduce of 8 B", 2, small, "", 3600.0 + operations / 100),
        ("random, 3 groups, 2 threads", 4, mixed, _HOSTS, patience),
    )
    for name, ranks, work, hosts, silence in runs:
        yield _row(name, returned_by(ranks, work, hosts, silence))


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    import syntony.benchmarks.runtime.measured.random_operations  # noqa: F401  once, and not in every rank

    return (
        Part(
            f"Operations without end, every result checked, seed {options.seed}; goal: no error, memory grows by at "
            f"most {MOST_GROWTH >> 20} MiB, no descriptor more",
            (
                ("operations", -27), ("ranks", 5), ("number", 8), ("s", 6), ("MB", 5), ("growth KB", 9),
                ("descriptors", 11),
            ),
            lambda: _rows(options.operations, options.minutes, options.seed),
        ),
    )  # fmt: skip


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--operations", type=count, default=1_000_000, metavar="N", help="small ones (1000000)")
    parser.add_argument("--minutes", type=float, default=20.0, metavar="M", help="of random ones (20)")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="of all that is random"
    )


TABLE = Table("soak", "whether anything goes wrong or grows in operations without end", _parts, _configure)
