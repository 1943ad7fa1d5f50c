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
        found = [_Rank(exchange, group, size, lead).timed(iterations) for size in SIZES]
    if exchange.rank == 0:
        results.write_text(json.dumps([asdict(timed) for timed in found]))
    return 0


class _Rank:
    def __init__(self, exchange: Exchange, group: Communicator, size: int, lead: float) -> None:
        self._exchange, self._group, self._lead = exchange, group, lead
        self._small = np.empty(size // 4, np.float32)
        self._bulk = [np.empty(BULK // 4 // BUCKETS, np.float32) for _ in range(BUCKETS)]
        self._meetings = 0

    def timed(self, iterations: int) -> Timed:
        seconds: dict[str, list[float]] = {"bulk": [], "idle": [], "behind": [], "urgent": []}
        for iteration in range(iterations + 1):
            for name, spent in (
                ("bulk", self._run("normal", None)),
                ("idle", self._run(None, "high")),
                ("behind", self._run("normal", "normal")),
                ("urgent", self._run("low", "high")),
            ):
                if iteration > 0:  # the first one warms up
                    seconds[name].append(spent)
        bulk = median(seconds.pop("bulk"))
        return Timed(self._small.nbytes, BULK / bulk, **{name: median(spent) for name, spent in seconds.items()})

    def _run(self, bulk: str | None, small: str | None) -> float:
        """Seconds from when all ranks have called it to the last one's end, of the small one, or else of the bulk."""
        rank, ranks = self._exchange.rank, self._exchange.size
        used = [*(self._bulk if bulk else ()), *((self._small,) if small else ())]
        for array in used:
            array.fill(rank + 1)
        start = self._agreed(time.monotonic() + _PAUSE, max)
        time.sleep(max(0.0, start - time.monotonic()))
        begin = time.monotonic()
        posted = self._bulk if bulk else []
        works = [self._group.all_reduce(array, priority=bulk, async_op=True) for array in posted]
        if small:
            time.sleep(max(0.0, start + self._lead - time.monotonic()))
            begin = time.monotonic()
            self._group.all_reduce(self._small, priority=small)
            end = time.monotonic()
        for work in works:
            assert work is not None
            work.wait()
        if not small:
            end = time.monotonic()
        if any(array[0] != ranks * (ranks + 1) / 2 or np.any(array != array[0]) for array in used):
            raise RuntimeError("an all_reduce has a wrong result")
        return self._agreed(end, max) - self._agreed(begin, max)

    def _agreed(self, mine: float, choose: Callable[[list[float]], float]) -> float:
        self._meetings += 1
        name = f"times of {self._small.nbytes} {self._meetings}"
        return choose([_TIME.unpack(blob)[0] for blob in self._exchange.all_gather(name, _TIME.pack(mine))])


def main(words: list[str]) -> int:
    results, iterations = words
    return measure(TcpBootstrap.from_environment(), Path(results), int(iterations), lead=0.3)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
