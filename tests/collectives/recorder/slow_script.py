"""A rank that computes for 100 ms, then meets the others, for some seconds. And four of them, one of which is slowed.

It computes by sleeping a millisecond a hundred times. So it takes almost no processor time, but being stopped for 30 ms
of every 100 ms slows it to 70 %, as it would slow any process.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[3]
RANKS = 4
STOPPED, PERIOD = 0.03, 0.1  # seconds


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number: int = server.getsockname()[1]
        return number


def run_slowed(folder: Path, seconds: float, victim: int, since: float, until: float) -> list[tuple[float, str]]:
    """What `syntony trace --every` says of a job in which `victim` is slow from `since` to `until`, and after how many
    seconds. All times are from the start of the job."""
    from tests.collectives.recorder.watched import watched

    environment = os.environ | {
        "SYNTONY_TRACE_DIR": str(folder), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }  # fmt: skip

    def job() -> None:
        begin = time.monotonic()
        ranks = [
            subprocess.Popen(
                [sys.executable, str(Path(__file__)), str(seconds)], cwd=ROOT, env=environment | {"RANK": str(rank)}
            )
            for rank in range(RANKS)
        ]
        try:
            time.sleep(since)
            while time.monotonic() < begin + until:
                ranks[victim].send_signal(signal.SIGSTOP)
                time.sleep(STOPPED)
                ranks[victim].send_signal(signal.SIGCONT)
                time.sleep(PERIOD - STOPPED)
            assert [rank.wait(timeout=seconds + 100) for rank in ranks] == [0] * RANKS
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()

    return watched(folder, job)


def main() -> int:
    import numpy as np

    from syntony import Communicator
    from syntony.collectives.bootstrap.rendezvous import exchange_of_this_rank

    exchange = exchange_of_this_rank(None, 60.0)
    assert exchange is not None
    deadline = time.monotonic() + float(sys.argv[1])
    with Communicator.create(exchange, 600.0) as group:
        going = np.ones(1, np.int32)
        while going[0]:
            for _ in range(100):
                time.sleep(0.001)
            going[0] = time.monotonic() < deadline
            group.all_reduce(going, op="min")
    return 0


if __name__ == "__main__":
    sys.exit(main())
