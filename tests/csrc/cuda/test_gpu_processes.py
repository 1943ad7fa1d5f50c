"""Ranks in processes of their own on one GPU, through CUDA IPC.

Without MPS, kernels of different processes take turns on a GPU, time slice by time slice, so this is slow: it shows
that handles, offsets and flags are right, and nothing about speed.
"""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np
import pytest

from syntony import _core
from tests.csrc.cuda.gpu import _cuda, needs_gpu

pytestmark = needs_gpu
ELEMENTS = 5003


def run_rank(rank: int, ranks: int, queues: list[list[Any]]) -> None:
    """`queues[to][source]`."""

    def exchange(mine: Any) -> list[Any]:
        """What every rank has put in, by rank."""
        for to in range(ranks):
            queues[to][rank].put(mine)
        return [queues[rank][source].get(timeout=60) for source in range(ranks)]

    def reach(memory: Any) -> list[tuple[Any, int]]:
        """Every rank's memory: what keeps it open, and its address here."""
        opened = []
        for peer, exported in enumerate(exchange(_cuda.export_memory(memory.address))):
            there = memory if peer == rank else _cuda.ImportedMemory(0, exported)
            opened.append((there, there.address))
        return opened

    shape = _cuda.ArenaShape(ranks, channels=8, slot_bytes=8192, line_bytes=2048)
    executor = _cuda.Executor(0, rank, shape, ranks)
    executor.set_timeout(60.0)
    arenas = []
    for peer, exported in enumerate(exchange(_cuda.export_memory(executor.arena))):
        arenas.append(None if peer == rank else _cuda.ImportedMemory(0, exported))
    executor.connect([executor.arena if each is None else each.address for each in arenas])
    stream = _cuda.Stream(0)
    data = np.arange(ELEMENTS, dtype=np.int32) * (rank + 1)
    wanted = np.arange(ELEMENTS, dtype=np.int32) * (ranks * (ranks + 1) // 2)
    for program in (_core.build("ring", "all_reduce", ranks), _cuda.pull_two_shot(ranks)):
        source, result = (_cuda.Memory(0, data.nbytes) for _ in range(2))
        source.write(data.tobytes())
        inputs, outputs = reach(source), reach(result)
        plan = _cuda.Plan(executor, program, "int32", "sum", [ELEMENTS])
        pointers = [0 if space == 2 else (inputs, outputs)[space][of][1] for of, space, _ in plan.bases]
        executor.launch(plan, pointers, stream.handle)
        stream.synchronize()
        assert executor.trouble() is None
        assert result.read(data.nbytes) == wanted.tobytes(), program.name
        exchange("done")  # nobody closes what a peer still reads


@pytest.mark.parametrize("ranks", [2, 4])
def test_processes_reach_each_other(ranks: int) -> None:
    context = multiprocessing.get_context("spawn")
    queues = [[context.Queue() for _ in range(ranks)] for _ in range(ranks)]
    processes = [context.Process(target=run_rank, args=(rank, ranks, queues)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(200)
    for process in processes:
        process.kill()
    assert [process.exitcode for process in processes] == [0] * ranks
