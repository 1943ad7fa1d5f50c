"""One rank of table `rails`: all_reduces, in the midst of one of which a network card of rank 0's host goes down.

    python -m syntony.benchmarks.sim_vs_lab.rails_rank SIZE CARD AFTER MENDING RESULTS

Rank 0 takes device CARD (`w1`) down AFTER seconds from the beginning of that one, brings it up later by the lines for
`ip` in file MENDING, and writes a Lost to RESULTS.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap
from syntony.collectives.communicator import Communicator

ROUNDS = 3
_TIMEOUT = 120.0
_PATIENCE = 60.0
"""Seconds of all_reduces, for a card that is up again to be used again."""


@dataclass(frozen=True)
class Lost:
    """Seconds of the slowest rank, of each all_reduce; `shares`: what each rank has left of its network, as found by
    `balance_rails`; `back`: seconds of all_reduces until that is everything again, before those of `restored`; `same`:
    in each phase all ranks and repetitions have the same bits, with the usual algorithm in all phases."""

    before: list[float]
    during: float
    after: list[float]
    balanced: list[float]
    shares: list[float]
    back: float
    restored: list[float]
    same: bool


def lose(size: int, card: str, after: float, mending: Path, results: Path) -> None:
    """All of a rank's part."""
    with TcpBootstrap.from_environment() as exchange, Communicator.create(exchange, _TIMEOUT) as group:
        given = np.random.default_rng(group.rank).standard_normal(size // 4).astype(np.float32)
        sum_ = np.empty_like(given)

        def once() -> tuple[float, str]:
            group.barrier()
            begun = time.monotonic()
            group.all_reduce(given, sum_)
            took = np.array([time.monotonic() - begun])
            group.all_reduce(took, op="max")
            return float(took[0]), hashlib.sha256(sum_.tobytes()).hexdigest()

        once()  # connects
        before = [once() for _ in range(ROUNDS)]
        down = threading.Timer(after, subprocess.run, [["ip", "link", "set", "dev", card, "down"]], {"check": True})
        if group.rank == 0:
            down.start()
        during = once()
        after_ = [once() for _ in range(ROUNDS)]
        shares = group.balance_rails()
        once()
        balanced = [once() for _ in range(ROUNDS)]
        if group.rank == 0:
            subprocess.run(["ip", "-batch", str(mending)], check=True)
        back = 0.0
        while min(group.balance_rails()) < 1 and back < _PATIENCE:
            back += once()[0]
        restored = [once() for _ in range(ROUNDS)]
        bits = [{found for _, found in [*before, during, *after_, *restored]}, {found for _, found in balanced}]
        mine = np.frombuffer(hashlib.sha256(json.dumps([sorted(phase) for phase in bits]).encode()).digest(), np.uint8)
        everybody = np.empty((group.size, mine.size), np.uint8)
        group.all_gather(mine, everybody)
        same = all(len(phase) == 1 for phase in bits) and bool((everybody == mine).all())
        times = [[seconds for seconds, _ in phase] for phase in (before, after_, balanced, restored)]
        if group.rank == 0:
            lost = Lost(times[0], during[0], times[1], times[2], shares, back, times[3], same)
            results.write_text(json.dumps(asdict(lost)))


if __name__ == "__main__":
    lose(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), Path(sys.argv[4]), Path(sys.argv[5]))
