"""Table `meeting`: how long many ranks need to meet, before they connect: at torch's store, and at rank 0.

Ranks are threads of four processes, so that thousands fit on one machine. Each has a connection of its own, as it would
have as a process, and meets the others three times, as it does to form a group, each time with as many bytes as a rank
then says of itself. What everybody gets is compared with what everybody brought.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from typing import Any, Protocol

from syntony.base.command import UserError
from syntony.benchmarks.tables import Part, Row, Table

PROCESSES = 4
MEETINGS = 3
BYTES = 300  # what a rank says of itself
SECONDS = 300.0  # the longest wait
GOALS = {64: 2.0, 512: 5.0, 4096: 30.0}
"""Seconds in which a group of so many ranks should be formed: meeting must stay below."""


class _Meets(Protocol):
    def all_gather(self, name: str, blob: bytes) -> list[bytes]: ...


def _at_store(port: int, rank: int, ranks: int, _secret: str) -> _Meets:
    from torch.distributed import TCPStore

    from syntony.collectives.bootstrap.bootstraps import StoreBootstrap

    store = TCPStore("127.0.0.1", port, ranks, False, timedelta(seconds=SECONDS), wait_for_workers=False)
    return StoreBootstrap(store, rank, ranks, SECONDS)


def _at_rank_0(port: int, rank: int, ranks: int, secret: str) -> _Meets:
    from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap

    return TcpBootstrap(rank, ranks, "127.0.0.1", port, SECONDS, secret)


WAYS: dict[str, Callable[[int, int, int, str], _Meets]] = {"store": _at_store, "rank 0": _at_rank_0}


def _brought(rank: int, turn: int) -> bytes:
    return f"{rank} {turn} ".encode().ljust(BYTES, b".")


def _meet(way: str, port: int, secret: str, mine: range, ranks: int, ready: Barrier, told: Any) -> None:
    """Connects one process's ranks, waits for the other processes', meets; tells its seconds, or what failed."""
    try:
        with ThreadPoolExecutor(len(mine)) as threads:
            made = list(threads.map(lambda rank: WAYS[way](port, rank, ranks, secret), mine))
            ready.wait(SECONDS)
            begin = time.perf_counter()

            def rank(it: _Meets, number: int) -> bool:
                turns = range(MEETINGS)
                return all(
                    it.all_gather(f"turn {turn}", _brought(number, turn)) == [_brought(r, turn) for r in range(ranks)]
                    for turn in turns
                )

            right = all(threads.map(rank, made, mine))
            told.put(time.perf_counter() - begin if right else "ranks got other bytes than were brought")
    except (OSError, RuntimeError, UserError, threading.BrokenBarrierError) as error:
        told.put(f"{type(error).__name__}: {error}")


def seconds(way: str, ranks: int) -> float:
    """How long the slowest of `ranks` ranks needs to meet the others MEETINGS times. UserError when that fails."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch warns of each connection that it finds no name for
    context = multiprocessing.get_context("spawn")
    keep: Any = None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    if way == "store":
        from torch.distributed import TCPStore

        keep = TCPStore("127.0.0.1", port, ranks, True, timedelta(seconds=SECONDS), wait_for_workers=False)
    ready, told, secret = context.Barrier(PROCESSES), context.Queue(), secrets.token_hex(16)
    parts = [range(ranks * part // PROCESSES, ranks * (part + 1) // PROCESSES) for part in range(PROCESSES)]
    processes = [
        context.Process(target=_meet, args=(way, port, secret, part, ranks, ready, told), daemon=True) for part in parts
    ]
    for process in processes:
        process.start()
    answers = [told.get(timeout=2 * MEETINGS * SECONDS) for _ in processes]
    for process in processes:
        process.join()
    del keep
    for answer in answers:
        if isinstance(answer, str):
            raise UserError(f"{ranks} ranks did not meet at {way}: {answer}")
    return float(max(answers))


def _rows(sizes: list[int]) -> Iterator[Row]:
    for ranks in sizes:
        goal = GOALS.get(ranks)
        for way in WAYS:
            taken = seconds(way, ranks)
            missed = f"more than {goal:g} s" if goal is not None and taken > goal else ""
            yield Row((way, ranks, f"{taken:.3f}", "" if goal is None else f"{goal:g}"), missed)


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    sizes: list[int] = options.ranks
    if min(sizes) < PROCESSES:
        raise UserError(f"--ranks {min(sizes)}: at least {PROCESSES}, one for each process")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(sizes) * 2 + 256  # rank 0 and the ranks of its process hold both ends
    if hard < needed:
        raise UserError(f"{max(sizes)} ranks need {needed} descriptors in a process, and {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    columns = (("at", -8), ("ranks", 6), ("s", 8), ("goal s", 6))
    return (
        Part(f"{MEETINGS} meetings with {BYTES} bytes of each rank; ranks are threads", columns, lambda: _rows(sizes)),
    )


def _configure(parser: argparse.ArgumentParser) -> None:
    def sizes(text: str) -> list[int]:
        return [int(number) for number in text.split(",")]

    parser.add_argument("--ranks", type=sizes, default=[64, 512], metavar="N,..", help="groups of so many (64,512)")


TABLE = Table("meeting", "how long many ranks need to meet, at torch's store and at rank 0", _parts, _configure)
