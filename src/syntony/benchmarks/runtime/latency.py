"""Table `latency`: 8 bytes, from Python: dist.all_reduce over our backend, the Communicator's, and torch's own floors.

The floors are `dist.all_reduce` over backends that do nothing:

    in Python    a ProcessGroup, which torch calls straight away: the least that a table can blame torch for
    in C++       torch's own `fake` backend, reached as every backend in C++ is, through torch's dispatcher
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import numpy as np

from syntony.benchmarks.bench.session import create_communicator
from syntony.benchmarks.bench.torch_store import open_store
from syntony.benchmarks.runtime.measured import sweep
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import Exchange

CROWD = 8
"""Ranks, on however many cores there are."""

GOALS = {("Communicator.all_reduce", CROWD): 20.0}
"""Microseconds, median; set on two cores."""

MORE = {"dist.all_reduce": {1: 0.5, 2: 1.0}}
"""Microseconds beyond torch's floor in C++, median, by ranks."""

_FLOOR = "floor"  # the null backend's name
_FLOORS = {"torch's floor, in Python": _FLOOR, "torch's floor, in C++": "fake"}


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    import torch.distributed  # noqa: F401  once, before ranks are forked

    columns = (("call", -27), ("ranks", 5), ("p50 us", 9), ("p99 us", 9), ("least us", 9), ("goal us", 7))
    title = "all_reduce of 8 bytes, called from Python, every result checked"
    return (Part(title, columns, lambda: _rows(options.iterations)),)


def _rows(iterations: int) -> Iterator[Row]:
    for ranks in (1, 2, CROWD):
        measured = _measure(ranks, iterations)
        floor = np.median(measured["torch's floor, in C++"]) / 1e3
        for name, durations in measured.items():
            p50, p99 = np.percentile(durations, [50, 99]) / 1e3
            more = MORE.get(name, {}).get(ranks)
            goal = GOALS.get((name, ranks)) if more is None else round(floor + more, 2)
            missed = f"more than {goal:g} us" if goal is not None and p50 > goal else ""
            cells = (name, ranks, f"{p50:.2f}", f"{p99:.2f}", f"{min(durations) / 1e3:.2f}", goal or "")
            yield Row(cells, missed)


def _measure(ranks: int, iterations: int) -> dict[str, list[int]]:
    """Nanoseconds of every call on rank 0, by what was called; they take turns."""
    durations: dict[str, list[int]] = sweep.answer_of_rank_0(ranks, lambda exchange: _on_a_rank(exchange, iterations))
    return durations


def _on_a_rank(exchange: Exchange, iterations: int) -> dict[str, list[int]]:
    import torch
    import torch.distributed as dist

    communicator: Any = create_communicator(exchange, sweep.SILENCE)
    limit = timedelta(seconds=sweep.SILENCE)
    store = open_store(exchange, "latency", sweep.SILENCE)
    dist.init_process_group("syntony", store=store, rank=exchange.rank, world_size=exchange.size, timeout=limit)
    dist.Backend.register_backend(_FLOOR, _null_backend, extended_api=True, devices=["cpu"])
    import torch.testing._internal.distributed.fake_pg  # registers `fake`

    floors = {name: dist.new_group(backend=backend) for name, backend in _FLOORS.items()}
    tensor, array = torch.zeros(2), np.zeros(2, np.float32)
    calls: dict[str, Callable[[], object]] = {
        "dist.all_reduce": lambda: dist.all_reduce(tensor),
        "the same, async_op and wait": lambda: _waited(dist.all_reduce(tensor, async_op=True)),
        "Communicator.all_reduce": lambda: communicator.all_reduce(array),
    }
    for name, group in floors.items():
        calls[name] = functools.partial(dist.all_reduce, tensor, group=group)
    for name, memory in (("dist.all_reduce", tensor), ("Communicator.all_reduce", array)):
        memory[:] = exchange.rank + 1
        calls[name]()
        if any(float(value) != exchange.size * (exchange.size + 1) / 2 for value in memory):
            raise AssertionError(f"{name} of {exchange.size} ranks gave {memory}")
        memory[:] = 0  # sums stay finite from here on
    turns, durations = 10, {name: list[int]() for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            communicator.barrier()
            for _ in range(iterations // turns):
                begin = time.perf_counter_ns()
                call()
                durations[name].append(time.perf_counter_ns() - begin)
    communicator.barrier()
    dist.destroy_process_group()
    communicator.close()
    return durations


def _waited(work: Any) -> None:
    work.wait()


def _null_backend(options: Any, backend_options: Any) -> Any:
    """A backend that does nothing, at once."""
    import torch
    import torch.distributed as dist
    from torch.futures import Future

    done: Any = Future()
    done.set_result(None)
    c10d: Any = torch._C._distributed_c10d  # not all of it is typed
    work = c10d._create_work_from_future(done)

    group: Any = dist.ProcessGroup  # its methods are overloaded; only one of them is called here

    class Null(group):  # type: ignore[misc]
        def allreduce(self, tensors: Any, options: Any = None) -> Any:
            return work

        def getBackendName(self) -> str:  # noqa: N802  torch's name
            return _FLOOR

    del backend_options
    return Null(options.group_rank, options.group_size)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--iterations", type=int, default=2000, metavar="N", help="timed calls of each kind (2000)")


TABLE = Table("latency", "8 bytes with 1, 2 and 8 ranks, beside torch's own floors", _parts, _configure)
