"""One rank of the comparison, started in the lab: times collectives, and believes no time of a wrong result.

    python -m syntony.benchmarks.sim_vs_lab.rank WORK RESULTS

WORK is a JSON list of `Job`s, equal on all ranks; rank 0 writes RESULTS, a JSON list of lists of seconds. The ranks of
a lab share one clock: they agree on a moment to start, and an iteration lasts from the first that starts to the last
that is done.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap
from syntony.collectives.communicator import Communicator

PAUSE = 0.1
"""Seconds between agreeing on a start and the start: the agreement has reached everybody, token buckets are full again,
and TCP has not yet forgotten how fast the way is (that takes 0.2 s)."""

_TIMES = struct.Struct("<dd")
_TIMEOUT = 120.0  # seconds that a collective may take

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Job:
    """`iterations` of a collective of `size` bytes (as Collective defines size) by the Program in a file.

    late  seconds after which the last rank calls it: then an iteration lasts from that call
    """

    program: str
    collective: str
    size: int
    iterations: int
    late: float = 0.0


class WrongResultError(RuntimeError):
    """A collective has computed something else than it should."""


def main(words: list[str]) -> int:
    work, results = map(Path, words)
    jobs = [Job(**entry) for entry in json.loads(work.read_text())]
    bootstrap = TcpBootstrap.from_environment()
    communicator = Communicator.create(bootstrap, _TIMEOUT)
    names = {path: communicator.load(path) for path in sorted({job.program for job in jobs})}
    found = []
    for number, job in enumerate(jobs):
        warm = number > 0 and jobs[number - 1].program == job.program
        found.append(_time(communicator, bootstrap, job, names[job.program], warm))
    if communicator.rank == 0:
        results.write_text(json.dumps(found))
    communicator.close()
    return 0


def _time(communicator: Communicator, bootstrap: TcpBootstrap, job: Job, algorithm: str, warm: bool) -> list[float]:
    """Seconds of every iteration. Unless TCP's windows are `warm`, one more comes first and does not count."""
    source, target, expected = _buffers(job, communicator.rank, communicator.size)
    collective: Any = getattr(communicator, job.collective)
    found = []
    for iteration in range(warm - 1, job.iterations):
        target.fill(-1.0)
        begin = _agreed_start(bootstrap, job.late if communicator.rank == communicator.size - 1 else 0.0)
        collective(source, target, algorithm=algorithm)
        end = time.monotonic()
        if not np.array_equal(target, expected):
            raise WrongResultError(f"{job.collective} of {job.size} bytes by {job.program} has a wrong result")
        times = [_TIMES.unpack(blob) for blob in bootstrap.all_gather("times", _TIMES.pack(begin, end))]
        if iteration >= 0:
            begins = [begin for begin, _ in times]
            found.append(max(end for _, end in times) - (max(begins) if job.late else min(begins)))
    return found


def _agreed_start(bootstrap: TcpBootstrap, late: float) -> float:
    """Waits until so long after the moment that rank 0 has named, on time.monotonic's clock; returns the time then."""
    now = time.monotonic()
    start, _ = _TIMES.unpack(bootstrap.all_gather("start", _TIMES.pack(now + PAUSE, now))[0])
    time.sleep(max(0.0, start + late - time.monotonic()))
    return time.monotonic()


def _buffers(job: Job, rank: int, ranks: int) -> tuple[Floats, Floats, Floats]:
    """Input, output, and what the output must become: small whole numbers, which floats add without rounding."""
    count = job.size // 4
    place = np.arange(count, dtype=np.float32) % 251
    if job.collective == "all_reduce":
        return place * (rank + 1), np.empty_like(place), place * (ranks * (ranks + 1) // 2)
    part = count // ranks
    if job.collective == "all_gather":  # element i of rank r is i + r
        return place[:part] + rank, np.empty_like(place), np.concatenate([place[:part] + r for r in range(ranks)])
    # all_to_all: element i of rank r is i + r, so part s of the output is part `rank` of rank s
    mine = place[rank * part : (rank + 1) * part]
    return place + rank, np.empty_like(place), np.concatenate([mine + sender for sender in range(ranks)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
