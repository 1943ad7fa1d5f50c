"""What one rank does alone: random Programs whose lanes share thread blocks and wait for each other. Short, so that
compute-sanitizer can look at it (tests/collectives/cuda/test_gpu_sanitizer.py)."""

from __future__ import annotations

import numpy as np

from syntony import _core
from tests.csrc.cuda.gpu import VirtualRanks, needs_gpu
from tests.csrc.runtime.cases import generator
from tests.csrc.runtime.programs.test_programs import interpreted, random_program

pytestmark = needs_gpu


def test_one_rank() -> None:
    rng = generator("gpu one rank")
    group = VirtualRanks(1, slot_bytes=4096, line_bytes=2048)
    for blocks in (1, 2, 0):
        columns = random_program(rng, 1)
        inputs = [{0: rng.standard_normal(5003).astype(np.float32)}]
        call = group.prepare(_core.Program(**columns), "float32", "sum", [5003], inputs, blocks=blocks)
        call.launch()
        group.finish()
        assert call.outputs(0)[0] == interpreted(columns, inputs, False, rng)[0]
