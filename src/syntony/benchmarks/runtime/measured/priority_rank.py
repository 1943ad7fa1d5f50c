"""One rank of table `priority`: times an all_reduce alone, behind bulk of its own class, and ahead of it.

    python -m syntony.benchmarks.runtime.measured.priority_rank RESULTS ITERATIONS         in the lab

The ranks share one clock: they agree on a moment to start. Rank 0 writes RESULTS, a JSON list of `Timed`.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from syntony.collectives.bootstrap.launch import Exchange
from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap
from syntony.collectives.communicator import Communicator

SIZES = (1 << 10, 64 << 10, 1 << 20)
"""Bytes of what is timed."""
BULK = 64 << 20
BUCKETS = 4
"""All_reduces that the bulk is made of."""

_PAUSE = 0.1  # seconds: the agreement has reached everybody
_TIME = struct.Struct("<d")


@dataclass(frozen=True)
class Timed:
    """Seconds, and the bulk's bytes/s."""

    size: int
    bandwidth: float
    idle: float
    behind: float
    urgent: float


def measure(exchange: Exchange, results: Path, iterations: int, lead: float) -> int:
    """Everything on this rank; the bulk is posted `lead` seconds before what is timed."""
    with Communicator.create(exchange, 120.0) as group:
        rank = _Rank(exchange, group, lead)
        bandwidth = rank.bulk_rate(iterations)
        found = [rank.timed(size, bandwidth, iterations) for size in SIZES]
    if exchange.rank == 0:
        results.write_text(json.dumps([asdict(timed) for timed in found]))
    return 0


class _Rank:
    def __init__(self, exchange: Exchange, group: Communicator, lead: float) -> None:
        self._exchange, self._group, self._lead = exchange, group, lead
        self._bulk = [np.empty(BULK // 4 // BUCKETS, np.float32) for _ in range(BUCKETS)]
        self._meetings = 0

    def bulk_rate(self, iterations: int) -> float:
        """Bytes/s of the bulk when nothing else is going on: the median."""
        self._run("normal")  # warms up
        return BULK / median(self._run("normal") for _ in range(iterations))

    def timed(self, size: int, bandwidth: float, iterations: int) -> Timed:
        """Medians of each, taken in turns."""
        ways = {"idle": (None, "high"), "behind": ("normal", "normal"), "urgent": ("low", "high")}  # of bulk and small
        small = np.empty(size // 4, np.float32)
        self._run(None, small)  # warms up
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(iterations):
            for name, (bulk, urgency) in ways.items():
                seconds[name].append(self._run(bulk, small, urgency))
        return Timed(size, bandwidth, **{name: median(spent) for name, spent in seconds.items()})

    def _run(self, bulk: str | None, small: NDArray[np.float32] | None = None, urgency: str = "high") -> float:
        """Seconds from when all ranks have called it to the last one's end: of `small`, or else of the bulk.

        `bulk` is the bulk's priority, None: none; `urgency` that of `small`.
        """
        rank, ranks = self._exchange.rank, self._exchange.size
        used = [*(self._bulk if bulk else ()), *(() if small is None else (small,))]
        for array in used:
            array.fill(rank + 1)
        start = self._agreed(time.monotonic() + _PAUSE, max)
        time.sleep(max(0.0, start - time.monotonic()))
        begin = time.monotonic()
        posted = self._bulk if bulk else []
        works = [self._group.all_reduce(array, priority=bulk, async_op=True) for array in posted]
        if small is not None:
            time.sleep(max(0.0, start + self._lead - time.monotonic()))
            begin = time.monotonic()
            self._group.all_reduce(small, priority=urgency)
            end = time.monotonic()
        for work in works:
            assert work is not None
            work.wait()
        if small is None:
            end = time.monotonic()
        if any(array[0] != ranks * (ranks + 1) / 2 or np.any(array != array[0]) for array in used):
            raise RuntimeError("an all_reduce has a wrong result")
        return self._agreed(end, max) - self._agreed(begin, max)

    def _agreed(self, mine: float, choose: Callable[[list[float]], float]) -> float:
        self._meetings += 1
        name = f"times {self._meetings}"
        return choose([_TIME.unpack(blob)[0] for blob in self._exchange.all_gather(name, _TIME.pack(mine))])


def main(words: list[str]) -> int:
    results, iterations = words
    return measure(TcpBootstrap.from_environment(), Path(results), int(iterations), lead=0.3)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
