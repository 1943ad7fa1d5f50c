"""One rank of a lab whose hosts have two network cards; rank 0's second one becomes slow between operations.

    python -m tests.lab.unequal_rails SIZE SLOW USUAL

SLOW and USUAL: lines for `tc`. Rank 0 prints the share of its bytes that left through the slowed device: before, while
it is slow, and once it is as fast again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap
from syntony.collectives.communicator import Communicator

ROUNDS = 4


def sent() -> dict[str, int]:
    """Bytes that left, by device of this namespace."""
    rows = [line.split(":") for line in Path("/proc/self/net/dev").read_text().splitlines()[2:]]
    return {name.strip(): int(figures.split()[8]) for name, figures in rows}


def main(size: int, slow: str, usual: str) -> None:
    with TcpBootstrap.from_environment() as exchange, Communicator.create(exchange, 120.0) as group:
        given = np.arange(size // 4, dtype=np.float32) % 251
        sum_ = np.empty_like(given)

        def share(device: str) -> float:
            before = sent()
            for _ in range(ROUNDS):
                group.all_reduce(given, sum_)
                assert np.array_equal(sum_, given * group.size), "a wrong sum"
            group.barrier()
            left = {name: count - before[name] for name, count in sent().items() if name.startswith("w")}
            return left[device] / sum(left.values()) if group.rank == 0 else 0.0

        device = slow.split()[slow.split().index("dev") + 1]
        share(device)  # connects
        shares = []
        for line in ("", slow, usual):
            if line and group.rank == 0:
                subprocess.run(["tc", *line.split()], check=True)
            group.all_reduce(given, sum_)
            shares.append(f"{share(device):.3f}")
        if group.rank == 0:
            print("shares", *shares)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
