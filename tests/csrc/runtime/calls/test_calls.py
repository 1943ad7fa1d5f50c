"""What a call keeps to, wherever its buffers lie, whichever thread runs it, however long it may take."""

from __future__ import annotations

import math
import resource
from pathlib import Path

import numpy as np
import pytest

from tests.csrc.runtime.group import failure_of
from tests.csrc.runtime.harness import Rank, run_as_processes

HOSTS = pytest.mark.parametrize("hosts", ["", "ab"])


def shifted(rank: Rank, count: int) -> None:
    """The output begins one element behind the input, or before it."""
    group = rank.join()
    for algorithm in ("auto", "ring", "direct", "two_shot"):
        for source, target in ((0, 1), (1, 0)):
            memory = np.zeros(count + 1, np.int64)
            memory[source : source + count] = np.arange(count) + rank.rank
            given, taken = memory[source:][:count], memory[target:][:count]
            views = {0: given.view(np.uint8)}, {0: taken.view(np.uint8)}
            group.run("all_reduce", "int64", [count], *views, algorithm=algorithm)
            np.testing.assert_array_equal(taken, 2 * np.arange(count) + 1, err_msg=f"{algorithm}, {source}, {target}")
    group.shutdown()


@pytest.mark.parametrize("count", [5, 50_000, 2_200_000])  # the last beyond 16 MiB, which is written past the caches
def test_an_output_may_overlap_the_input_of_its_own_block(count: int) -> None:
    run_as_processes(shifted, 2, count)


def without_end(rank: Rank, seconds: float) -> None:
    group = rank.join(timeout=seconds)
    if rank.rank == 0:
        works = [group.raw.barrier(async_op=True), group.raw.barrier(timeout=seconds, async_op=True)]
        assert not works[0].wait(0.05), "the other rank has not come yet"
        rank.meet("late")
        assert works[1].wait(seconds)
    else:
        rank.meet("late")
        group.raw.barrier()
        group.raw.barrier(timeout=seconds)
    group.shutdown()


@HOSTS
@pytest.mark.parametrize("seconds", [math.inf, 1e10])
def test_a_timeout_may_be_as_long_as_one_likes(hosts: str, seconds: float) -> None:
    run_as_processes(without_end, 2, seconds, hosts=hosts)


def subnormal(rank: Rank) -> None:
    import torch

    group = rank.join()
    tiny = np.full(100, np.finfo(np.float32).smallest_subnormal * 1000, np.float32)
    torch.set_flush_denormal(True)  # of this thread, which runs what it waits for; the other one's is as it was
    try:
        for algorithm in ("auto", "ring"):
            sums, later = np.zeros_like(tiny), np.zeros_like(tiny)
            views = {0: sums.view(np.uint8)}
            group.run("all_reduce", "float32", [100], {0: tiny.view(np.uint8)}, views, algorithm=algorithm)
            views = {0: later.view(np.uint8)}
            options = {"algorithm": algorithm, "async_op": True}
            work = group.run("all_reduce", "float32", [100], {0: tiny.view(np.uint8)}, views, **options)
            while not work.done:
                pass
            assert sums.tobytes() == later.tobytes(), algorithm
            assert set(sums.view(np.int32)) == {2000}, algorithm
    finally:
        torch.set_flush_denormal(False)
    group.shutdown()


def test_sums_do_not_depend_on_how_a_thread_treats_subnormal_numbers() -> None:
    pytest.importorskip("torch")
    run_as_processes(subnormal, 2)


def without_memory(rank: Rank) -> tuple[str, tuple[int, ...], str]:
    """Rank 1 cannot have what the Program keeps between its steps."""
    group = rank.join()
    array = np.ones(32 << 20, np.float32)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    rank.meet("all have buffers")
    if rank.rank == 1:
        resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20), limits[1]))
    try:
        kind, guilty, sentence, _ = failure_of(lambda: group.all_reduce(array, algorithm="pairwise"))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    return kind, guilty, sentence


def test_a_rank_without_memory_is_named_by_all() -> None:
    for kind, guilty, sentence in run_as_processes(without_memory, 3):
        assert (kind, guilty) == ("system", (1,)), sentence
        assert "rank 1 is out of memory" in sentence
