"""Ranks as threads of this process: they share a GPU's context, so that their kernels run beside each other.

Kernels of different processes take turns on a GPU (unless MPS runs), and ranks that wait for each other then wait for
time slices. Threads do not: their streams are streams of one process. Python's lock matters only between launches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from syntony.collectives.bootstrap.launch import Exchange, RankError


class _Meeting:
    """Where the threads meet."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks)
        self.blobs = [b""] * ranks


@dataclass(frozen=True)
class ThreadExchange:
    """One thread's way to the others. `silence`: seconds after which a rank that does not come is an error."""

    rank: int
    size: int
    meeting: _Meeting
    silence: float

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        """Everybody's blob in rank order. Collective."""
        try:
            self.meeting.blobs[self.rank] = blob
            self.meeting.barrier.wait(self.silence)
            everybody = list(self.meeting.blobs)
            self.meeting.barrier.wait(self.silence)  # nobody brings the next blob before all have read
        except threading.BrokenBarrierError:
            raise _LeftAloneError(f"rank {self.rank} was alone for {self.silence:g} s at '{name}'") from None
        return everybody


class _LeftAloneError(RankError):
    """Not this rank's fault, unless nobody else has one."""


def run_threads(ranks: int, work: Callable[[Exchange], int], silence: float) -> int:
    """Runs `work(exchange)` on `ranks` threads; the largest of their exit codes.

    What a rank raises ends all of them at their next meeting and is raised here.
    """
    meeting = _Meeting(ranks)
    codes = [0] * ranks
    errors: list[Exception] = []

    def run(rank: int) -> None:
        try:
            codes[rank] = work(ThreadExchange(rank, ranks, meeting, silence))
        except Exception as error:
            errors.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((error for error in errors if not isinstance(error, _LeftAloneError)), errors[0])
    return max(codes)
