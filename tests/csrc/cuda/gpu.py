"""A group of ranks on one GPU in one process ("virtual ranks"), for the tests: each rank has a stream of its own."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from syntony import _core
from tests.csrc.program_interpreter import blocks_of, ends, starts

# Streams that share a queue of the GPU would wait for each other; read when CUDA starts.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
_cuda = pytest.importorskip("syntony._cuda", reason="the CUDA executor was not built here: there is no nvcc")
needs_gpu = pytest.mark.skipif(_cuda.device_count() == 0, reason="there is no GPU here")

Arrays = list[dict[int, np.ndarray]]  # by rank, then block


class VirtualRanks:
    """Executors of all ranks on GPU 0."""

    def __init__(self, ranks: int, **shape: int) -> None:
        self.ranks = ranks
        self.executors = [_cuda.Executor(0, rank, _cuda.ArenaShape(ranks, **shape), ranks) for rank in range(ranks)]
        for executor in self.executors:
            executor.connect([each.arena for each in self.executors])
            executor.set_timeout(20.0)
        self.streams = [_cuda.Stream(0) for _ in range(ranks)]

    def prepare(self, program: Any, dtype: str, op: str, sizes: list[int], inputs: Arrays, **options: Any) -> Call:
        return Call(self, program, dtype, op, sizes, inputs, options)

    def finish(self) -> None:
        for stream in self.streams:
            stream.synchronize()
        assert [executor.trouble() for executor in self.executors] == [None] * self.ranks


class Call:
    """One Program bound to memory of its own; `launch` puts it into all streams."""

    def __init__(
        self,
        group: VirtualRanks,
        program: Any,
        dtype: str,
        op: str,
        sizes: list[int],
        inputs: Arrays,
        options: dict[str, Any],
    ) -> None:
        self.group, self.program, self.sizes = group, program, sizes
        self.bytes = _core.itemsize(dtype)
        where = (program.collective, program.ranks, program.root)
        self.memory: dict[tuple[int, int, int], Any] = {}  # rank, space, block
        for rank in range(group.ranks):
            for block, size in enumerate(sizes):
                if starts(*where, rank, block):
                    memory = self.memory[rank, 0, block] = _cuda.Memory(0, size * self.bytes + 16)
                    memory.write(inputs[rank][block].tobytes())
                if ends(*where, rank, block):
                    self.memory[rank, 1, block] = _cuda.Memory(0, size * self.bytes + 16)
        self.plans = [_cuda.Plan(each, program, dtype, op, sizes, **options) for each in group.executors]

    def pointers(self, rank: int) -> list[int]:
        return [
            self.plans[of].scratch if space == 2 else self.memory[of, space, block].address
            for of, space, block in self.plans[rank].bases
        ]

    def launch(self) -> None:
        for rank, executor in enumerate(self.group.executors):
            executor.launch(self.plans[rank], self.pointers(rank), self.group.streams[rank].handle)

    def outputs(self, rank: int) -> dict[int, bytes]:
        return {
            block: memory.read(self.sizes[block] * self.bytes)
            for (of, space, block), memory in self.memory.items()
            if of == rank and space == 1
        }


def even_sizes(collective: str, ranks: int, elements: int) -> list[int]:
    return [elements] * blocks_of(collective, ranks)
