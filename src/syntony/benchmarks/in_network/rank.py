"""What every rank of the benchmark does: `python -m syntony.benchmarks.in_network.rank OUT SIZE..` under the lab.

All results are checked before a time counts: rank r's numbers are known to everybody, so the reference needs no
network.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony.collectives.aggregation import InNetwork
from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap
from syntony.collectives.communicator import Communicator

FORMATS = ("float32", "int32_block", "bfloat16", "float32_fpisa")
REPETITIONS = 5

Floats = NDArray[np.float32]


def numbers(rank: int, elements: int, job: int = 0) -> Floats:
    """What `rank` brings: like gradients, of like size and either sign."""
    return np.random.default_rng((job, rank)).standard_normal(elements, np.float32)


class Session:
    """A rank's ends of the ring and of two jobs at the switch."""

    def __init__(self, bootstrap: TcpBootstrap) -> None:
        self.ring = Communicator.create(bootstrap)
        self.jobs = [InNetwork.create(bootstrap) for _ in range(2)]
        self.rank, self.size = bootstrap.rank, bootstrap.size

    def median(self, work: Callable[[], object]) -> float:
        """Seconds of the slowest rank, the median of several runs."""
        found = []
        for _ in range(REPETITIONS):
            self.ring.barrier()
            begin = time.perf_counter()
            work()
            slowest = np.array([time.perf_counter() - begin])
            self.ring.all_reduce(slowest, op="max")
            found.append(float(slowest[0]))
        return statistics.median(found)

    def exact(self, elements: int, job: int = 0) -> NDArray[np.float64]:
        total = np.zeros(elements)
        for rank in range(self.size):
            total += numbers(rank, elements, job)
        return total

    def in_rank_order(self, elements: int, job: int = 0) -> Floats:
        total = numbers(0, elements, job)
        for rank in range(1, self.size):
            total = total + numbers(rank, elements, job)
        return total

    def measure(self, size: int) -> list[dict[str, Any]]:
        """One row per way: the ring, then every number format through the switch."""
        elements = size // 4
        mine, result = numbers(self.rank, elements), np.empty(elements, np.float32)
        exact = self.exact(elements)
        rows = []
        for way in ("ring", *FORMATS):
            if way == "ring":
                seconds = self.median(lambda: self.ring.all_reduce(mine, result, algorithm="ring"))
            else:
                seconds = self.median(lambda way=way: self.jobs[0].all_reduce(mine, result, number_format=way))  # type: ignore[misc]
            if way == "float32" and not np.array_equal(result, self.in_rank_order(elements)):
                raise AssertionError(f"{size} bytes through the switch: not the float32 sum in rank order")
            error = np.abs(result - exact)
            rows.append(
                {
                    "size": size,
                    "way": way,
                    "seconds": seconds,
                    "error": float(error.max()),
                    "relative": float(error.max() / np.abs(exact).max()),
                    "equal": self.equal(result),
                }
            )
        return rows

    def equal(self, result: Floats) -> bool:
        """Whether all ranks hold the same bits."""
        bits = result.view(np.uint32)
        digest = np.array([bits.sum(dtype=np.uint64), np.bitwise_xor.reduce(bits)], np.uint64).view(np.int64)
        most, least = digest.copy(), digest.copy()
        self.ring.all_reduce(most, op="max")
        self.ring.all_reduce(least, op="min")
        return bool(np.array_equal(most, least))

    def tenants(self, size: int) -> dict[str, Any]:
        """Two jobs at once, each with its own numbers; seconds until both are done."""
        elements = size // 4
        mine = [numbers(self.rank, elements, job) for job in range(2)]
        results = [np.empty(elements, np.float32) for _ in range(2)]

        def both() -> None:
            threads = [
                threading.Thread(target=job.all_reduce, args=(mine[number], results[number]))
                for number, job in enumerate(self.jobs)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        seconds = self.median(both)
        right = all(np.array_equal(result, self.in_rank_order(elements, job)) for job, result in enumerate(results))
        if not right:
            raise AssertionError("two tenants: a job did not get its own sum")
        return {"size": size, "way": "two tenants, float32 each", "seconds": seconds}


def main(arguments: Sequence[str]) -> int:
    """Measures, and writes the rows to OUT on rank 0."""
    out, sizes = Path(arguments[0]), [int(size) for size in arguments[1:]]
    with TcpBootstrap.from_environment() as bootstrap:
        session = Session(bootstrap)
        rows = [row for size in sizes for row in session.measure(size)]
        tenants = session.tenants(max(sizes))
        if bootstrap.rank == 0:
            out.write_text(json.dumps({"rows": rows, "tenants": tenants}), encoding="utf-8")
        session.ring.barrier()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
