"""One rank of the last part of table `stragglers`: all_reduces of a job in which the last rank's wire becomes slow.

    python -m syntony.benchmarks.sim_vs_lab.switch_rank SIZE SLOW RATE RESULTS

The wire is slow from SLOW on, a moment of the clock that all processes of a machine share. Afterwards the ranks set
that rank's rate to RATE of the others'. Rank 0 writes a Switch to RESULTS.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap
from syntony.collectives.communicator import Communicator

ROUNDS = 3
_TIMEOUT = 120.0
_LATER = 0.5
"""Seconds that the lab may take to slow the wire down."""


@dataclass(frozen=True)
class Switch:
    """Seconds of the slowest rank, of each all_reduce: on equal wires, with the slow one, and with rates to match;
    `first`: of `set_rates` and the first all_reduce after it, together; `early`: the wire was slow only after the first
    part."""

    before: list[float]
    slow: list[float]
    first: float
    after: list[float]
    early: bool

    @property
    def seconds(self) -> float:
        """What the switch itself takes."""
        return self.first - float(np.median(self.after))


def switch(size: int, slow: float, rate: float, results: Path) -> None:
    """All of a rank's part."""
    with TcpBootstrap.from_environment() as exchange, Communicator.create(exchange, _TIMEOUT) as group:
        ones = np.ones(size // 4, np.float32)
        sum_ = np.empty_like(ones)

        def all_reduce() -> None:
            group.all_reduce(ones, sum_)
            if not np.all(sum_ == group.size):
                raise AssertionError(f"all_reduce of ones is {sum_.min()} to {sum_.max()}")

        def timed(work: Callable[[], None]) -> float:
            group.barrier()
            begun = time.monotonic()
            work()
            took = np.array([time.monotonic() - begun])
            group.all_reduce(took, op="max")
            return float(took[0])

        def switched() -> None:
            group.set_rates([1.0] * (group.size - 1) + [rate])
            all_reduce()

        all_reduce()  # connects
        before = [timed(all_reduce) for _ in range(ROUNDS)]
        early = time.monotonic() < slow
        time.sleep(max(0.0, slow + _LATER - time.monotonic()))
        slowed = [timed(all_reduce) for _ in range(ROUNDS)]
        first = timed(switched)
        after = [timed(all_reduce) for _ in range(ROUNDS)]
        if group.rank == 0:
            results.write_text(json.dumps(asdict(Switch(before, slowed, first, after, early))))


if __name__ == "__main__":
    switch(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
