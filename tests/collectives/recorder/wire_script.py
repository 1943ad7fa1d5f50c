"""A rank of an emulated cluster: collective after collective, for some seconds. And the cluster, watched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run_lab(folder: Path, seconds: float, fault: str = "") -> list[tuple[float, str]]:
    """What `syntony trace --every` says of a star of four hosts, and how many seconds after the lab began.

    Skips the test where there can be no lab.
    """
    import pytest

    from tests.collectives.recorder.watched import watched

    lab = [sys.executable, "-m", "syntony", "lab", "star:4", "--rate", "100mbit", "--no-ceilings"]
    if fault:
        lab += ["--fault", fault]

    def job() -> None:
        done = subprocess.run(
            [*lab, "--", sys.executable, str(Path(__file__)), str(seconds)],
            cwd=ROOT, env=os.environ | {"SYNTONY_TRACE_DIR": str(folder)}, capture_output=True, text=True,
            timeout=seconds + 100, check=False,
        )  # fmt: skip
        if done.returncode == 2:
            pytest.skip(f"no lab here: {done.stderr.strip()}")
        assert done.returncode == 0, done.stdout + done.stderr

    return watched(folder, job)


def main() -> int:
    import numpy as np

    from syntony import Communicator
    from syntony.collectives.bootstrap.rendezvous import exchange_of_this_rank

    exchange = exchange_of_this_rank(None, 60.0)
    assert exchange is not None
    deadline = time.monotonic() + float(sys.argv[1])
    with Communicator.create(exchange, 600.0) as group:
        data, blocks = np.ones(1 << 18, np.float32), np.ones((4, 1 << 16), np.float32)
        others = np.empty_like(blocks)
        going = np.ones(1, np.int32)
        while going[0]:
            group.all_reduce(data, op="max")
            group.all_gather(blocks[0], blocks)
            group.all_to_all(blocks, others)
            group.broadcast(data, root=0)
            going[0] = time.monotonic() < deadline
            group.all_reduce(going, op="min")
    return 0


if __name__ == "__main__":
    sys.exit(main())
