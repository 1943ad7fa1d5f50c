"""Communicator on arrays of a GPU: ranks as processes that share it through CUDA IPC, and as threads of one.

Without MPS, kernels of different processes take turns on a GPU, time slice by time slice: this shows that handles,
offsets, flags and names are right, and nothing about speed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syntony import Communicator, _core
from tests.collectives.cuda.schedules import schedule
from tests.collectives.ranks import Ranks
from tests.csrc.cuda.gpu import _cuda, needs_gpu
from tests.csrc.runtime.harness import Processes, Rank, run_as_processes

pytestmark = needs_gpu
SIZES = (1, 1003, 300_000)


class OnGpu:
    """An array in GPU memory, at a stream."""

    def __init__(self, values: np.ndarray, stream: Any) -> None:
        self.dtype, self.stream, self.memory = values.dtype, stream, _cuda.Memory(0, max(values.nbytes, 16))
        self.memory.write(values.tobytes())
        self.__cuda_array_interface__ = {
            "shape": values.shape, "typestr": values.dtype.str, "data": (self.memory.address, False),
            "version": 3, "strides": None, "stream": stream.handle,
        }  # fmt: skip

    def values(self) -> np.ndarray:
        count = int(self.__cuda_array_interface__["shape"][0])
        return np.frombuffer(self.memory.read(count * self.dtype.itemsize), self.dtype)

    def copied(self) -> Any:
        """What the stream finds in it when it has come here."""
        copy = _cuda.Memory(0, len(self.memory))
        copy.copy_from(self.memory, self.stream)
        return copy


def part(rank: int, count: int) -> np.ndarray:
    return (np.arange(count, dtype=np.int32) + 7 * rank) * (rank + 1)


def collectives(group: Communicator) -> None:
    """All of them, each against NumPy."""
    stream, ranks = _cuda.Stream(0), range(group.size)

    def right(found: OnGpu, wanted: np.ndarray, what: str) -> None:
        stream.synchronize()
        assert np.array_equal(found.values(), wanted), what

    for count in SIZES:
        whole = count * group.size
        empty, room = np.zeros(count, np.int32), np.zeros(whole, np.int32)
        for algorithm in ("auto", "ring", "dbt"):
            array = OnGpu(part(group.rank, count), stream)
            group.all_reduce(array, algorithm=algorithm)
            right(array, sum(part(rank, count) for rank in ranks), f"all_reduce, {algorithm}")
        gathered = OnGpu(room, stream)
        group.all_gather(OnGpu(part(group.rank, count), stream), gathered)
        right(gathered, np.concatenate([part(rank, count) for rank in ranks]), "all_gather")
        share = OnGpu(empty, stream)
        group.reduce_scatter(OnGpu(part(group.rank, whole), stream), share)
        total = sum(part(rank, whole) for rank in ranks)
        right(share, total[group.rank * count :][:count], "reduce_scatter")
        exchanged = OnGpu(room, stream)
        group.all_to_all(OnGpu(part(group.rank, whole), stream), exchanged)
        mine = slice(group.rank * count, (group.rank + 1) * count)
        right(exchanged, np.concatenate([part(rank, whole)[mine] for rank in ranks]), "all_to_all")
        sent = OnGpu(part(group.rank, count), stream)
        group.broadcast(sent, root=1)
        right(sent, part(1, count), "broadcast")
        beside = OnGpu(part(group.rank, count), stream)
        group.all_reduce(beside)
        work = group.all_reduce(beside, async_op=True)
        assert work is not None
        assert work.wait()
        seen = beside.copied()
        stream.synchronize()
        assert work.done
        total = group.size * sum(part(rank, count) for rank in ranks)
        assert seen.read(total.nbytes) == total.tobytes(), "async_op"


def in_a_process(rank: Rank) -> None:
    with Communicator(rank.join(timeout=200.0).raw) as group:
        collectives(group)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("ranks", [2, 4])
def test_processes_give_what_numpy_gives(ranks: int) -> None:
    run_as_processes(in_a_process, ranks, deadline=300.0)


def loaded(rank: Rank, path: Path) -> None:
    with Communicator(rank.join(timeout=200.0).raw) as group:
        name = group.load(path)
        stream = _cuda.Stream(0)
        for count in SIZES:
            array = OnGpu(part(group.rank, count), stream)
            group.all_reduce(array, algorithm=name)
            stream.synchronize()
            assert np.array_equal(array.values(), sum(part(k, count) for k in range(group.size)))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ["forest", "greedy"])
def test_loaded_schedules_give_what_numpy_gives(engine: str, tmp_path: Path) -> None:
    run_as_processes(loaded, 4, schedule(tmp_path, "ring:4", "all_reduce", engine), deadline=300.0)


@pytest.mark.timeout(400)
def test_hosts_give_what_numpy_gives() -> None:
    run_as_processes(in_a_process, 4, hosts=("one", "one", "other", "other"), deadline=300.0)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_virtual_ranks_give_what_numpy_gives(ranks: int) -> None:
    group = Ranks(ranks)
    group.run(collectives)
    group.close()


def left_alone(rank: Rank) -> tuple[tuple[str, str, tuple[int, ...]], float]:
    group = Communicator(rank.join(timeout=200.0).raw)
    stream = _cuda.Stream(0)
    array = OnGpu(part(rank.rank, 1000), stream)
    group.all_reduce(array)
    stream.synchronize()
    rank.tell("formed")
    rank.meet("formed", [0])
    group.all_reduce(array)  # rank 1 never comes
    stream.synchronize()  # its death ends the kernel
    when = time.monotonic()
    with pytest.raises(_core.CommunicationError) as caught:
        group.all_reduce(array)
    return (str(caught.value), caught.value.kind, caught.value.ranks), when


def test_a_process_that_dies_ends_the_kernel_that_waits_for_it() -> None:
    with Processes(left_alone, 2) as ranks:
        ranks.wait_for_event("formed")
        ranks.kill(1)
        died = time.monotonic()
        (sentence, kind, guilty), when = ranks.finish()[0]
    assert sentence.startswith("rank 0, on GPU 0: rank 1 died, and all_reduce #2 (1000 x int32) was the last"), sentence
    assert (kind, guilty) == ("dead", (1,))
    assert when - died < 20.0, "less than the time-out"


def test_who_comes_too_late_is_named() -> None:
    group = Ranks(2)
    streams = [_cuda.Stream(0), _cuda.Stream(0)]

    def job(rank: Communicator) -> None:
        stream = streams[rank.rank]
        array = OnGpu(part(rank.rank, 1000), stream)
        rank.all_reduce(array)
        if rank.rank == 0:
            rank.all_reduce(array, timeout=0.2)
        stream.synchronize()
        if rank.rank == 1:
            rank.barrier()  # until the other has told
        words = r"all_reduce #2 \(1000 x int32\) timed out at lane \d+, instruction \d+, waiting for rank 1"
        with pytest.raises(_core.CommunicationError, match=words):
            rank.all_reduce(array)
        if rank.rank == 0:
            rank.barrier()

    group.run(job)
    for each in group.groups:
        each.abort("the test is over")
