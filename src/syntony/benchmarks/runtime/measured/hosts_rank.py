"""One rank of the table `hosts`, started in the lab: times collectives beside gloo, every result checked.

    python -m syntony.benchmarks.runtime.measured.hosts_rank WORK RESULTS

WORK is a JSON list of `Job`s, equal on all ranks; rank 0 writes RESULTS, a JSON list of lists of `Timed`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from syntony.benchmarks.bench.contenders import Contender, Syntony, TorchGroup
from syntony.benchmarks.bench.elements import ELEMENTS
from syntony.benchmarks.bench.measure import Bench, Effort
from syntony.benchmarks.bench.measurement import Case
from syntony.benchmarks.bench.shapes import SHAPES, Shape
from syntony.benchmarks.runtime.measured.devices import sent
from syntony.collectives.bootstrap.launch import Exchange
from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap
from syntony.collectives.communicator import Communicator

GLOO = "gloo"
_TIMEOUT = 120.0  # seconds that a collective may take


@dataclass(frozen=True)
class Job:
    """A collective of `size` bytes (the larger buffer) by each of `algorithms` and, where it is among them, gloo; names
    that end in .json are files."""

    collective: str
    size: int
    iterations: int
    algorithms: tuple[str, ...]


@dataclass(frozen=True)
class Timed:
    """`algorithm`: the Program that ran; `seconds`: median of the iterations, mean of the ranks; `wrong`: elements.

    `carried`: bytes that left by each network device of rank 0's host, checks included, in the order of their names.
    """

    algorithm: str
    seconds: float
    wrong: int
    carried: tuple[int, ...]


def main(words: Sequence[str]) -> int:
    work, results = map(Path, words)
    jobs = [Job(**entry) for entry in json.loads(work.read_text())]
    with TcpBootstrap.from_environment() as bootstrap, Communicator.create(bootstrap, _TIMEOUT) as communicator:
        found = timings(bootstrap, communicator, jobs)
        if communicator.rank == 0:
            results.write_text(json.dumps([[asdict(timed) for timed in row] for row in found]))
        communicator.barrier()
    return 0


def timings(exchange: Exchange, communicator: Communicator, jobs: Sequence[Job]) -> list[list[Timed]]:
    """By job, what each of its algorithms took. Collective; the same on every rank but for `carried`."""
    gloo = TorchGroup(exchange, GLOO, _TIMEOUT) if any(GLOO in job.algorithms for job in jobs) else None
    bench = Bench(exchange)
    found = [[_time(bench, communicator, gloo, job, name) for name in job.algorithms] for job in jobs]
    communicator.barrier()
    if gloo is not None:
        gloo.close()
    return found


def _time(bench: Bench, communicator: Communicator, gloo: TorchGroup | None, job: Job, name: str) -> Timed:
    contender: Contender
    if name == GLOO:
        assert gloo is not None
        contender = gloo
    else:
        contender = Syntony(communicator, communicator.load(name) if name.endswith(".json") else name)
    shape, element = SHAPES[job.collective], ELEMENTS["float"]
    operation = "sum" if shape.reduces else None
    case = Case(shape, element, operation, 0, shape.block(job.size, communicator.size, element.item_bytes))
    before = sent()
    form = name == GLOO and shape.in_place == "same"  # gloo's all_reduce has one buffer
    (result,) = bench.run(case, [contender], Effort(job.iterations), forms=(form,))
    carried = tuple(after - was for after, was in zip(sent(), before, strict=True))
    timing = result.best_form
    assert timing is not None, "every contender has these collectives"
    ran = GLOO if name == GLOO else _ran_last(communicator, shape)
    return Timed(ran, timing.p50, timing.wrong or 0, carried)


def _ran_last(communicator: Communicator, shape: Shape) -> str:
    operations = reversed(communicator.record().operations)
    return next(one.algorithm for one in operations if one.collective == shape.name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
