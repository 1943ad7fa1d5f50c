"""One rank of the table `over`, started in the lab: schedules by `syntony.over` beside what the group does itself.

    python -m syntony.benchmarks.runtime.measured.over_rank WORK RESULTS

WORK is a JSON list of `Job`s, equal on all ranks; rank 0 writes RESULTS, a JSON list of `Timed`. Every result is
compared bit by bit with what the inputs sum up to, or where they went; sums are of whole numbers, exact in any order.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

_WARM = 2


@dataclass(frozen=True)
class Job:
    """`size` bytes (the larger buffer) on a group of `backend`; `schedule` is a built-in algorithm or a file."""

    backend: str
    collective: str
    schedule: str
    size: int
    iterations: int


@dataclass(frozen=True)
class Timed:
    """Seconds, medians of the iterations, the slowest rank's: the backend itself (gloo's own collective; our executor
    with the same schedule), `syntony.over`, and the same as messages; `wrong` elements of all."""

    own: float
    over: float
    messages: float
    wrong: int


def main(words: Sequence[str]) -> int:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    work, results = map(Path, words)
    jobs = [Job(**entry) for entry in json.loads(work.read_text())]
    dist.init_process_group("cpu:gloo")
    groups: dict[str, Any] = {"gloo": dist.group.WORLD}
    for backend in {job.backend for job in jobs} - groups.keys():
        groups[backend] = dist.new_group(backend=backend)
    found = [_time(job, groups[job.backend]) for job in jobs]
    if dist.get_rank() == 0:
        results.write_text(json.dumps([asdict(one) for one in found]))
    dist.barrier()
    dist.destroy_process_group()
    return 0


def _time(job: Job, group: Any) -> Timed:
    import torch
    import torch.distributed as dist

    from syntony.collectives.p2p.over import over

    rank, ranks = dist.get_rank(), dist.get_world_size()
    elements = max(1, job.size // 4 // ranks) * ranks
    small = elements // ranks
    whole = job.collective in ("all_reduce", "reduce_scatter", "all_to_all")
    given = _values(rank, elements if whole else small)
    wanted = torch.empty(small if job.collective == "reduce_scatter" else elements)
    expected = _expected(job.collective, rank, ranks, elements)
    ways: list[Callable[[], object]] = [_own(job, group, given, wanted)]
    for messages in (False, True):
        ways.append(_over(over(group, messages=messages), job, given, wanted))
    wrong = 0
    seconds: list[list[float]] = [[] for _ in ways]
    for turn in range(job.iterations + _WARM):
        for number, way in enumerate(ways):
            wanted.copy_(given) if job.collective == "all_reduce" else wanted.fill_(-1)
            dist.barrier()
            begun = time.perf_counter()
            way()
            if turn >= _WARM:
                seconds[number].append(time.perf_counter() - begun)
            wrong += int((wanted != expected).sum())
    told = torch.tensor([median(each) for each in seconds] + [float(wrong)])
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    own, by_over, as_messages, faults = told.tolist()
    return Timed(own, by_over, as_messages, int(faults))


def _values(rank: int, elements: int) -> Any:
    import torch

    return ((torch.arange(elements) * 7 + rank * 13) % 61).float()


def _expected(collective: str, rank: int, ranks: int, elements: int) -> Any:
    import torch

    small = elements // ranks
    mine = slice(rank * small, (rank + 1) * small)
    if collective == "all_gather":
        return torch.cat([_values(other, small) for other in range(ranks)])
    every = [_values(other, elements) for other in range(ranks)]
    if collective == "all_to_all":
        return torch.cat([one[mine] for one in every])
    total = torch.stack(every).sum(0)
    return total if collective == "all_reduce" else total[mine]


def _own(job: Job, group: Any, given: Any, wanted: Any) -> Callable[[], object]:
    """The backend's own collective; on our backend the executor itself, with the same schedule."""
    import torch.distributed as dist

    if job.backend == "syntony":
        from syntony.collectives.torch_backend.backend import communicator_of

        communicator = communicator_of(group)
        name = communicator.load(job.schedule) if job.schedule.endswith(".json") else job.schedule
        verb = getattr(communicator, job.collective)
        source, target = (wanted if job.collective == "all_reduce" else given).numpy(), wanted.numpy()
        return lambda: verb(source, target, algorithm=name)
    return {
        "all_reduce": lambda: dist.all_reduce(wanted, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(wanted, given, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(wanted, given, group=group),
        "all_to_all": lambda: dist.all_to_all_single(wanted, given, group=group),
    }[job.collective]


def _over(group: Any, job: Job, given: Any, wanted: Any) -> Callable[[], object]:
    if job.collective == "all_reduce":
        return lambda: group.all_reduce(wanted, schedule=job.schedule)
    verb = getattr(group, job.collective)
    return lambda: verb(given, output=wanted, schedule=job.schedule)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
