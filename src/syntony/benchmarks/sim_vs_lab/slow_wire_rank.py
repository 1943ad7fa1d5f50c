"""What every rank of `slow_wire` does in the lab:

    python -m syntony.benchmarks.sim_vs_lab.slow_wire_rank OUT BEGIN SECONDS SIZE

BEGIN is when faults began to count, of the clock that all processes of a machine share.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap
from syntony.collectives.communicator import Communicator

_TIMEOUT = 120.0
_EVERY = 2.0  # seconds between two questions


def main(words: Sequence[str]) -> int:
    """all_reduce over and over, and tune_if_slow in between. Rank 0 writes when calls began and ended and by which
    algorithm they ran, and when the group tuned itself, because of which wires."""
    out, begin, lasts, size = Path(words[0]), float(words[1]), float(words[2]), int(words[3])
    calls: list[tuple[float, float, str]] = []
    tunings: list[dict[str, Any]] = []
    with Communicator.create(TcpBootstrap.from_environment(), _TIMEOUT) as group:
        ones, told, asked = np.ones(size // 4, np.float32), np.zeros(2), 0.0
        while not told[0]:
            algorithm = group._core.choice("all_reduce", 0, ones.nbytes)[0]
            before = time.monotonic() - begin
            group.all_reduce(ones)
            now = time.monotonic() - begin
            calls.append((before, now, algorithm))
            if not np.all(ones == group.size):
                raise AssertionError(f"all_reduce of ones left {ones.min()} to {ones.max()}")
            ones[:] = 1
            if group.rank == 0:  # its clock decides for all
                told[:] = now > lasts, now > asked + _EVERY
            group.broadcast(told)
            if not told[1]:
                continue
            asked = now
            if wires := group.tune_if_slow():
                ended = time.monotonic() - begin
                named = [{"ends": (wire.source, wire.destination), "text": str(wire)} for wire in wires]
                tunings.append({"begin": now, "end": ended, "wires": named})
        if group.rank == 0:
            out.write_text(json.dumps({"calls": calls, "tunings": tunings}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
