"""Generated kernels on a GPU: virtual ranks of one process share it. Skipped where there is none (make test-cuda)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syntony import _core
from syntony.collectives.cuda.compiled import Compiled, GpuError
from syntony.synth.model.program import Program
from tests.csrc.program_interpreter import blocks_of, ends, starts
from tests.csrc.runtime.cases import generator

CASES = [
    ("two_shot", "all_reduce", 4), ("direct", "all_reduce", 2), ("ring", "all_reduce", 8), ("dbt", "all_reduce", 4),
    ("direct", "all_gather", 4), ("direct", "reduce_scatter", 4), ("direct", "all_to_all", 4),
    ("ring", "all_gather", 8),
]  # fmt: skip


def arrays(cp: Any, program: Program, count: int, dtype: str, rng: np.random.Generator) -> tuple[list[Any], list[Any]]:
    """Per rank, block -> array: what it starts with, and room for what it ends with."""
    sides: tuple[list[Any], list[Any]] = ([], [])
    for rank in range(program.ranks):
        for side, held in zip(sides, (starts, ends), strict=True):
            blocks = [
                block
                for block in range(blocks_of(program.collective, program.ranks))
                if held(program.collective, program.ranks, program.root, rank, block)
            ]
            side.append({block: cp.asarray(rng.integers(-4, 5, count).astype(dtype)) for block in blocks})
    return sides


def expected(program: Program, inputs: list[Any], rank: int, block: int) -> np.ndarray:
    held = [given[block].get() for given in inputs if block in given]
    total = held[0]
    for other in held[1:]:
        total = total + other
    return total


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
@pytest.mark.parametrize("fuse", [True, False])
def test_virtual_ranks_on_one_gpu(cupy: Any, case: tuple[str, str, int], fuse: bool) -> None:
    name, collective, ranks = case
    rng = generator("gpu", *case)
    program = Program.from_core(_core.build(name, collective, ranks, 0, None))
    compiled = Compiled.of(program, "float32", fuse=fuse)
    for count in (1, 1003, 1 << 20):
        inputs, outputs = arrays(cupy, program, count, "float32", rng)
        bound = compiled.bind(inputs, outputs)
        for _ in range(3):
            bound.launch()
        cupy.cuda.get_current_stream().synchronize()
        bound.check()
        for rank in range(ranks):
            for block, found in outputs[rank].items():
                assert np.array_equal(found.get(), expected(program, inputs, rank, block)), (rank, block, count)


def test_a_graph_replays_it(cupy: Any) -> None:
    rng = generator("graph")
    program = Program.from_core(_core.build("two_shot", "all_reduce", 4, 0, None))
    inputs, outputs = arrays(cupy, program, 4096, "float16", rng)
    bound = Compiled.of(program, "float16").bind(inputs, outputs)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        bound.launch()
        graph = stream.end_capture()
        for _ in range(5):
            graph.launch(stream)
    stream.synchronize()
    for rank in range(4):
        assert np.array_equal(outputs[rank][0].get(), expected(program, inputs, rank, 0))


def test_more_lanes_than_run_at_once_are_refused(cupy: Any) -> None:
    program = Program.from_core(_core.build("two_shot", "all_reduce", 4, 0, None))
    inputs, outputs = arrays(cupy, program, 64, "float32", generator("many"))
    with pytest.raises(GpuError, match="thread blocks on GPU 0, which runs"):
        Compiled.of(program, "float32").bind(inputs, outputs, stripes=1 << 20)
